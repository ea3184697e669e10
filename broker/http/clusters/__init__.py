"""Routes for clusters, brokers, bookies and bundles."""
