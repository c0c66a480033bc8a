"""The dispatcher, the reconcile loop and the report reader, shared by the controller and local mode."""
