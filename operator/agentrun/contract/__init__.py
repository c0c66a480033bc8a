"""What both planes agree on: resource models, work orders, reports, ledger keys, failures."""
