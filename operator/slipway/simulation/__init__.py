"""Replays scaling decisions over a recorded or generated load: the production decision and its well-known rivals.

A simulation, not a measurement: requests are a fluid, pods are numbers, and every result says so.
"""
