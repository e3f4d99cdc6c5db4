"""Issue "it stays up", long faults, each in a cluster of its own and in virtual time."""

import pytest

from e2e.faults import virtual_time
from e2e.faults.long import FAULTS, suffer


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_it_gets_over(fault):
    said = virtual_time.run(suffer(fault))
    assert said
