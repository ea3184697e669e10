"""The rights of callers: one decision for every command and every route."""
