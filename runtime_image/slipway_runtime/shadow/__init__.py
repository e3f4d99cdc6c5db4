"""Repeating live requests to a candidate, and comparing its answers with ours."""
