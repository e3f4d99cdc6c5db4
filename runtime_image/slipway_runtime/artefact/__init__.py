"""Model files: where they are, whether they are the right ones, what is in them. Runs no foreign code."""
