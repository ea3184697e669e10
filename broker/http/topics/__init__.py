"""Routes for topics and subscriptions."""
