"""Record what an operator leaves in a cluster, so that later ones can be shown to take it over.

``PYTHONPATH=OLDER/operator python -m tests.upgrade.record VERSION COMMIT`` writes VERSION-objects.jsonl into
tests/data/upgrade with the operator of that folder. The cluster is simulated, see e2e/faults; objects and status are as
the operator wrote them.
"""

import sys
from pathlib import Path
from typing import Any

import orjson
from slipway.kube.kinds import WATCHED

from e2e.faults import virtual_time
from e2e.faults.api import Api
from e2e.faults.world import Wall, World
from tests.upgrade.situations import SITUATIONS

DATA = Path(__file__).parents[1] / "data" / "upgrade"


async def _recorded(name: str) -> dict[str, Any]:
    wall = Wall()
    api = Api(wall)
    await api.start()
    async with World.of(api, wall, name) as world:
        operator = world.operator()
        await SITUATIONS[name](world)
        await operator.stop()
        kinds = [kind for kind in WATCHED if api.serves(kind)]
        found = [{"apiVersion": k.api_version, "kind": k.name} | obj for k in kinds for obj in api.objects(k, name)]
        return {"at": wall(), "objects": found}


def main(version: str, commit: str) -> None:
    """Record every situation."""
    situations = {name: virtual_time.run(_recorded(name)) for name in SITUATIONS}
    origin = f"the operator of commit {commit} in a simulated cluster, by tests/upgrade/record.py"
    (DATA / f"{version}-objects.jsonl").write_bytes(_lines({"version": version, "origin": origin}, situations))


def _lines(head: dict[str, str], situations: dict[str, dict[str, Any]]) -> bytes:
    """JSON lines: what the file is, then each object with its situation and the time (seconds since the epoch)."""
    lines: list[dict[str, Any]] = [head]
    for name, situation in situations.items():
        lines += [{"situation": name, "at": situation["at"], "object": obj} for obj in situation["objects"]]
    return b"".join(orjson.dumps(line, option=orjson.OPT_SORT_KEYS) + b"\n" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:3])
