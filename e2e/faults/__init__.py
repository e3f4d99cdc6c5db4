"""Faults put in the operator's way, one at a time, and what has to hold in spite of them."""
