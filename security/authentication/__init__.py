"""Who a peer is: credentials in, a role out. The providers have Pulsar's class names and keys."""
