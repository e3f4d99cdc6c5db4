"""One server as several processes that share its ports."""
