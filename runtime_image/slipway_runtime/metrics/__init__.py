"""What the server tells Prometheus and the statistics endpoint."""
