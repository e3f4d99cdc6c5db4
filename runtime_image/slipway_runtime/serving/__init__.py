"""Requests on their way to the model: queue, batches, the executor thread."""
