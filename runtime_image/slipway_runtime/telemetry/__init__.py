"""What is told about single requests: access log and traces."""
