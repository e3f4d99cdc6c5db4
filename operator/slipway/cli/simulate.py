"""``slipway simulate``: what scaling would have done under a load, and what others would have."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect

from slipway.api.autoscaling import ScalingMode
from slipway.api.errors import InvalidSpecError, SlipwayError, spec_error
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.timestamps import parse_time
from slipway.cli.columns import indented, table
from slipway.cli.documents import examined, model_deployments
from slipway.metrics.traces import AnswerError, parse
from slipway.simulation.load import LONGEST, MOST, Load, load_of_points, read_load
from slipway.simulation.replay import Conditions, Result, replay
from slipway.simulation.report import HEAD, rows, write_csv, write_picture
from slipway.simulation.rivalry import against, chosen_rivals
from slipway.simulation.scrapes import parse_faults, seconds_of
from slipway.simulation.slipway_policy import SlipwayPolicy

__all__ = ["add_arguments", "simulate"]

SAFE_SHARE = 0.8
DECISIONS = 12
STEP = 15
"""Seconds between two points of a range read from Prometheus."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("-f", "--filename", required=True, help="file with the ModelDeployment; - is standard input")
    parser.add_argument("--trace", help="CSV file: a column of times (each row an arrival), or times and rates")
    parser.add_argument("--prometheus-url", default="", help="read the load from Prometheus instead of a file")
    parser.add_argument("--query", default="", help="PromQL for requests per second (default: those of the object)")
    parser.add_argument("--start", default="", help="begin of the range, ISO 8601 (with --prometheus-url)")
    parser.add_argument("--end", default="", help="its end, ISO 8601")
    parser.add_argument("--scale", type=_positive, default=1.0, help="factor on the requests (default: 1)")
    parser.add_argument(
        "--capacity", type=_positive, help="requests/s of a replica at most (default: qps.target / 0.8)"
    )
    parser.add_argument("--cold-start", default="60s", help="usual time from a pod's creation to ready (default: 60s)")
    parser.add_argument("--slo", default="2s", help="longest wait that counts as good (default: 2s)")
    parser.add_argument("--replicas", type=_count, help="at the beginning (default: what the first minute needs)")
    parser.add_argument("--places", type=_count, default=1_000_000, help="pods that the cluster has room for")
    parser.add_argument("--faults", default="", help="metric faults, such as down@10m+5m,half@1h+10m")
    parser.add_argument("--seed", type=int, default=1, help="of the start times (default: 1)")
    parser.add_argument("--against", default="", help="rivals at equal cost: hpa,keda,kpa")
    parser.add_argument("--out", default="", help="folder for replay.csv and replay.png")


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number <= MOST:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {MOST:g}")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def simulate(parsed: argparse.Namespace) -> int:
    """Replay and print; returns the exit status."""
    obj = model_deployments(parsed.filename)[0]
    spec = _spec_of(obj)
    load = _load(parsed, obj).scaled(parsed.scale)
    conditions = _conditions(parsed, spec, load)
    names = chosen_rivals(parsed.against)
    policy = SlipwayPolicy(spec)
    own = replay(policy, load, conditions)
    results = [own, *against(own, names, load, conditions, spec.autoscaling)]
    print(
        f"{load.name}: {load.requests:.0f} requests in {load.duration / 60:.0f} min (simulation: fluid requests, "
        f"{conditions.capacity:g}/s per replica, starts around {conditions.cold_start:g} s)"
    )
    print("\n".join(["", *table(HEAD, rows(results)), ""]))
    last = policy.decisions[-DECISIONS:]
    if last:
        print(f"The last {len(last)} of {len(policy.decisions)} decisions:")
        head = ("SECOND", "REPLICAS", "REASON", "NUMBERS")
        lines = [(_second(item.at, policy), f"{item.from_} to {item.to}", item.reason, item.message) for item in last]
        print("\n".join(indented(table(head, lines))))
    if parsed.out:
        _write(results, load, Path(parsed.out))
    return 0


def _second(text: str, policy: SlipwayPolicy) -> str:
    return f"{(parse_time(text) or 0.0) - policy.epoch:.0f}"


def _write(results: list[Result], load: Load, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(results, folder / "replay.csv")
    print(f"wrote {folder / 'replay.csv'}")
    write_picture(results, load, folder / "replay.png")
    print(f"wrote {folder / 'replay.png'}")


def _spec_of(obj: Mapping[str, Any]) -> ModelDeploymentSpec:
    outcome = examined(obj)
    if outcome.spec is None:
        raise spec_error(outcome.problems)
    for warning in outcome.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    mode = outcome.spec.autoscaling.mode
    if mode is not ScalingMode.OPERATOR:
        raise InvalidSpecError(f"spec.autoscaling.mode: {mode} leaves nothing to Slipway that could be replayed")
    scaling = outcome.spec.autoscaling.model_copy(update={"dry_run": False})
    return outcome.spec.model_copy(update={"autoscaling": scaling})


def _load(parsed: argparse.Namespace, obj: Mapping[str, Any]) -> Load:
    if bool(parsed.trace) == bool(parsed.prometheus_url):
        raise SlipwayError("give either --trace FILE or --prometheus-url URL with --start and --end")
    if parsed.trace:
        return read_load(Path(parsed.trace))
    metadata = obj.get("metadata") or {}
    own = (
        f'sum(rate(slipway_requests_total{{namespace="{metadata.get("namespace") or "default"}",'
        f'model="{metadata.get("name")}",shadow!="true"}}[1m]))'
    )
    return _from_prometheus(parsed.prometheus_url, parsed.query or own, parsed.start, parsed.end)


def _from_prometheus(url: str, query: str, start: str, end: str) -> Load:
    try:
        begin, finish = parse_time(start), parse_time(end)
    except ValueError as error:
        raise SlipwayError(f"--start, --end: {error}") from error
    if begin is None or finish is None or finish <= begin:
        raise SlipwayError("--start and --end name a range, such as 2026-03-01T08:00:00Z and 2026-03-01T20:00:00Z")
    if finish - begin > LONGEST:
        raise SlipwayError(f"--start and --end are more than {LONGEST // 86400} days apart; replay parts of it")
    connection = PrometheusConnect(url=url.rstrip("/"), timeout=60)
    try:
        # The library's own range method takes datetimes and drops fractions; the plain call keeps what was asked.
        answer = connection.custom_query(f"({query})[{round(finish - begin)}s:{STEP}s]", params={"time": f"{finish}"})
        traces = parse(answer)
    except (PrometheusApiClientException, requests.RequestException, AnswerError) as error:
        raise SlipwayError(f"Prometheus: {error}") from error
    except (KeyError, TypeError) as error:
        raise SlipwayError("Prometheus: the answer is JSON, but not of Prometheus' form") from error
    if len(traces) != 1:
        raise SlipwayError(f"the query gives {len(traces)} series where one is needed: {query}")
    return load_of_points("prometheus", traces[0].samples)


def _conditions(parsed: argparse.Namespace, spec: ModelDeploymentSpec, load: Load) -> Conditions:
    scaling = spec.autoscaling
    capacity = parsed.capacity or (scaling.qps.target / SAFE_SHARE if scaling.qps.target else None)
    if capacity is None:
        raise SlipwayError("--capacity is needed where spec.autoscaling.qps.target is unset: requests/s of one replica")
    first = load.rates[:60]
    need = sum(first) / len(first) / (scaling.qps.target or capacity * SAFE_SHARE)
    replicas = parsed.replicas if parsed.replicas is not None else -int(-need // 1)
    cold_start, objective = seconds_of(parsed.cold_start, "--cold-start"), seconds_of(parsed.slo, "--slo")
    base = Conditions(capacity=capacity, cold_start=cold_start, replicas=1, objective=objective)
    bounded = min(max(replicas, scaling.min_replicas), scaling.max_replicas)
    return replace(base, replicas=bounded, places=parsed.places, seed=parsed.seed, faults=parse_faults(parsed.faults))
