"""Every recorded scene through the translator and a real Envoy: the same configuration, the same answers."""

from collections import Counter
from typing import Any

import pytest
from scipy.stats import binom

from tests.istio_wire.mesh_bench import REVISIONS, SCENES, Bench, scene

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = sorted(path.stem for path in SCENES.glob("*.json"))
CONFIDENCE = 0.999
NOT_RECORDED = {"typed_extension_protocol_options"}
"""Fields of a cluster that the recording left out."""


async def test_all_scenes_are_here() -> None:
    assert len(NAMES) == 19


@pytest.mark.parametrize("name", NAMES)
async def test_configuration_is_istiods(bench: Bench, name: str) -> None:
    recorded = scene(name)
    config = bench.translate(recorded["objects"])
    expected_hosts = recorded["envoy"]["virtualHosts"]
    assert list(config.virtual_hosts[: len(expected_hosts)]) == expected_hosts
    port_80 = [cluster for cluster in config.clusters if cluster["name"].startswith("outbound|80|")]
    shown = [{key: value for key, value in cluster.items() if key not in NOT_RECORDED} for cluster in port_80]
    assert shown == recorded["envoy"]["clusters"]


@pytest.mark.parametrize("name", NAMES)
async def test_answers_are_the_recorded_ones(bench: Bench, name: str) -> None:
    recorded = scene(name)
    assert recorded["accepted"]
    await bench.show(recorded["objects"])
    for probe in recorded["probes"]:
        headers = {key.replace("-", "_"): value for key, value in probe["headers"].items()}
        shares = expected_shares(recorded, set(probe["answers"]))
        answers = await bench.send(probe["requests"], probe["host"], **headers)
        if len(shares) > 1 and not fits(answers, shares):
            # One draw in a thousand lies outside by chance alone; two in a row do not.
            answers = await bench.send(probe["requests"], probe["host"], **headers)
        assert set(answers) == set(probe["answers"])
        assert fits(answers, shares), f"{answers} is not {shares}"


def expected_shares(recorded: dict[str, Any], answers: set[str]) -> dict[str, float]:
    """The share of each answer, by the recorded weights of the only route of a scene with several answers."""
    if len(answers) == 1:
        return dict.fromkeys(answers, 1.0)
    clusters = recorded["envoy"]["virtualHosts"][0]["routes"][0]["route"]["weighted_clusters"]["clusters"]
    known = {cluster["name"] for cluster in recorded["envoy"]["clusters"]}
    address = {revision: address for address, revision in REVISIONS.items()}
    shares: Counter[str] = Counter()
    total = sum(item["weight"] for item in clusters)
    for item in clusters:
        subset = item["name"].split("|")[2]
        served = item["name"] in known and subset in address
        shares[f"200 {address[subset]}" if served else "503"] += item["weight"] / total
    return dict(shares)


def fits(answers: Counter[str], shares: dict[str, float]) -> bool:
    total = answers.total()
    for answer, share in shares.items():
        low, high = binom.interval(CONFIDENCE, total, share)
        if not low <= answers[answer] <= high:
            return False
    return set(answers) <= set(shares)
