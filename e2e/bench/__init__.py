"""Measurements that back what the documentation says."""
