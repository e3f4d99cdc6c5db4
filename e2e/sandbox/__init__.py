"""A cluster on one machine without containers."""
