"""End-to-end tests, the demo and the sandbox they run in."""
