"""Model programs: loading, what they take and give, running them."""
