"""How fast the runtime serves, beside other servers and beside what Python can do at all: ``make bench-runtime``."""
