"""Routes for tenants and namespaces."""
