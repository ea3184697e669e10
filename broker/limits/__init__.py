"""Rates, budgets and gates: what a client, a topic or a tenant may cost. Decisions without
connections or topics."""
