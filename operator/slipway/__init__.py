"""Slipway: a Kubernetes operator for model deployments."""

__all__ = ["__version__"]

__version__ = "0.1.0"
