"""Access to the Kubernetes API: client, cache, apply and prune, events, lease. Plain dicts in and out."""
