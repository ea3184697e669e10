"""Topics, their subscriptions, and the service that holds those of this broker."""
