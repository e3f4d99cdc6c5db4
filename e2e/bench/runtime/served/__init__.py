"""What runs in the servers that are compared: one set of models, and an adapter for each server."""
