"""The same requests to a real Triton and to the runtime: ``python -m e2e.bench.conformance``."""
