"""Tensors of the protocol: datatypes, specifications, values. NumPy only, no torch."""
