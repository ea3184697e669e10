"""Who may do what: one decision for every command and every route."""
