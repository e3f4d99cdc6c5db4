"""What holds for all tests.

Property tests run on machines that do other work: no example has a time limit, and none is too slow to draw.
"""

import gc

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Let garbage collections pass over all that was imported and collected: a million objects that stay to the end."""
    gc.collect()
    gc.freeze()
