"""The models of a server: which are there, which serve, and how one takes the place of another."""
