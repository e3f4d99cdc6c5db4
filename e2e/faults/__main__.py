"""Puts faults in the operator's way and prints what came of it: ``python -m e2e.faults calls|storms|long|processes``.

`calls` strikes every call of every scenario with every fault; `storms` strikes a fifth of all calls at random; `long`
plays faults that last; all of them in virtual time. `processes` kills real operator processes while requests go through
a real Envoy. Exit code 1 when something did not hold.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from e2e.faults import virtual_time
from e2e.faults.calls import every_call, every_storm
from e2e.faults.long import every_fault
from e2e.faults.processes import every_process
from e2e.faults.table import Row, table

__all__ = ["main"]

Part = Callable[[list[str]], Coroutine[Any, Any, list[Row]]]
PARTS: Mapping[str, Part] = {
    "calls": every_call,
    "storms": every_storm,
    "long": every_fault,
    "processes": every_process,
}
"""Each takes words that choose among what it has."""
VIRTUAL = ("calls", "storms", "long")


def main() -> int:
    """Play one part and print its table."""
    parser = argparse.ArgumentParser(prog="python -m e2e.faults", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("words", nargs="*", help="only scenarios or faults with one of these in their title")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun = time.monotonic()
    work = PARTS[arguments.part](arguments.words)
    rows = virtual_time.run(work) if arguments.part in VIRTUAL else asyncio.run(work)
    print(table(rows))
    tried, failed = sum(row.tried for row in rows), sum(len(row.failed) for row in rows)
    print(f"\n{tried} tries, {failed} failed; {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
