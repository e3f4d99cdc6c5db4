"""Bringing models to this machine: streaming, bounded, resumable; nothing is parsed before it is verified."""
