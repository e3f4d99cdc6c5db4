"""The processors and the memory that this process has from the system."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from pathlib import Path

_CGROUP2 = Path("/sys/fs/cgroup/cpu.max")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def usable_processors() -> int:
    """The smaller of the affinity mask and the container's CPU limit, at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CGROUP2.read_text().split()
        if quota != "max":
            count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


def limit_threads() -> int:
    """Tell the numeric libraries, before they are imported; gives the thread count.

    A value the user has set in the environment stands.
    """
    count = usable_processors()
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(count))
    given = os.environ["OMP_NUM_THREADS"]
    return int(given) if given.isdigit() and int(given) > 0 else count


def return_free_memory() -> None:
    """Give the pages that the allocator holds without need back to the system, where the C library can do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
