"""What dashboards read: histograms kept per topic, and the Prometheus page over everything."""
