"""Jobs on a cluster: one for each attempt of a tool of mode Job, made and taken away as attempts ask for it."""
