"""Turning a model into another format, and proving that it is still the same model."""
