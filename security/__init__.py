"""TLS, and the identity of the callers of brokers, bookies and HTTP servers."""
