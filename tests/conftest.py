"""Property tests run on machines that do other work: no example has a time limit, and none is too slow to draw."""

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
