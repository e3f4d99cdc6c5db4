"""``python -m e2e.bench.runtime``: measure, print the tables, write docs/runtime-bench.md and a JSON file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from e2e.bench.runtime.environments import CACHE, NotInstalled, weights
from e2e.bench.runtime.measuring import Exchanges, Failed, Pace, Sample, cores, measure, started, verify
from e2e.bench.runtime.peers import PEERS, Peer
from e2e.bench.runtime.report import Results, printed, write_page
from e2e.bench.runtime.served.models import MODELS
from e2e.bench.runtime.workloads import Workload, groups, requests_of

_RESULTS = CACHE / "results.json"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.runtime", description=__doc__)
    parser.add_argument("--peers", default="", help="comma-separated, of: " + ", ".join(one.name for one in PEERS))
    parser.add_argument("--models", default="", help="comma-separated, of: " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each pair; medians are reported")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    parser.add_argument("--quick", action="store_true", help="one round of one second; writes no page")
    parser.add_argument("--resume", action="store_true", help="keep earlier measurements, add those that are missing")
    parser.add_argument("--urgent", action="store_true", help="measure at the highest priority, on a busy machine")
    parser.add_argument("--page", action="store_true", help="write the page after a part, too")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="the JSON file")
    return parser.parse_args()


def main() -> int:
    """Measure; gives the exit code: 1 when a server that should answer did not."""
    given = _arguments()
    names = {one for one in given.peers.split(",") if one}
    models = {one for one in given.models.split(",") if one}
    results = Results.read(given.results) if given.resume else Results()
    rounds, pace = (1, Pace(0.5, 1.0)) if given.quick else (given.rounds, Pace(1.0, given.seconds, given.urgent))
    os.environ["BENCH_FILES"] = str(weights())
    # Reference answers are computed, and everything is directed, on the client's core.
    os.sched_setaffinity(0, {cores()[1]})
    for (model, _), workloads in groups().items():
        if models and model not in models:
            continue
        exchanges = requests_of(model, MODELS[model].load())
        for round_number in range(rounds):
            for peer in PEERS:
                if not names or peer.name in names:
                    _measure_peer(peer, workloads, exchanges, results, round_number, pace)
                    given.results.parent.mkdir(parents=True, exist_ok=True)
                    given.results.write_text(json.dumps(results.document(), indent=1))
    sys.stdout.write(printed(results))
    if given.page or not (given.quick or names or models):
        write_page(results)
    return 1 if results.failures else 0


def _measure_peer(
    peer: Peer, workloads: list[Workload], exchanges: Exchanges, results: Results, done: int, pace: Pace
) -> None:
    """One round of one server; workloads that have been measured more than ``done`` times are left out."""
    wanted = []
    for workload in workloads:
        reason = peer.refusal(workload)
        if reason:
            results.note(workload.name, peer.name, reason)
        elif len(results.samples(workload.name, peer.name)) <= done:
            wanted.append(workload)
    if not wanted:
        return
    try:
        with started(peer, wanted[0].model, wanted[0].batch) as server:
            for workload in wanted:
                verify(server, workload, exchanges)
                sample = measure(server, workload, exchanges, pace)
                results.add(workload.name, peer.name, dataclasses.asdict(sample))
                _tell(peer, workload, sample)
    except (Failed, NotInstalled) as problem:
        for workload in wanted:
            if not results.samples(workload.name, peer.name):
                results.fail(workload.name, peer.name, str(problem).splitlines()[0])
        sys.stderr.write(f"{peer.name}: {problem}\n")


def _tell(peer: Peer, workload: Workload, sample: Sample) -> None:
    shown: tuple[Any, ...] = (peer.name, workload.name, sample.rate, sample.p50 * 1e6, sample.cpu * 1e6)
    sys.stderr.write("{:18} {:14} {:9.0f}/s  p50 {:8.0f} us  cpu {:7.0f} us\n".format(*shown))


if __name__ == "__main__":
    sys.exit(main())
