"""Tenants, namespaces, policies, schemas and grants: records of the metadata store, and the
decisions that follow from them."""
