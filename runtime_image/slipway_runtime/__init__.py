"""Slipway's model server: torch programs behind the Open Inference Protocol, version 2."""

__version__ = "0.1.0"
