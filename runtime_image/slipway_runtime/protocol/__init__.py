"""The Open Inference Protocol on the wire: requests in, answers out. Pure functions, no I/O."""
