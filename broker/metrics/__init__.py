"""What dashboards read: the Prometheus page over everything."""
