"""The Prometheus page of everything, for dashboards."""
