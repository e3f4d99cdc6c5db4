"""The model of the conformance run, for both servers."""
