"""``slipway simulate``."""

import csv
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.api.errors import SlipwayError
from slipway.cli import main
from slipway.cli.simulate import _from_prometheus

from tests.metrics.prometheus import FakePrometheus, serving

MANIFEST: dict[str, Any] = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"name": "m", "namespace": "n"},
    "spec": {
        "versions": [{"name": "v1", "uri": "file:///m"}],
        "autoscaling": {"minReplicas": 1, "maxReplicas": 20, "qps": {"target": 60}},
    },
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    manifest, trace = tmp_path / "m.yaml", tmp_path / "trace.csv"
    manifest.write_text(yaml.safe_dump(MANIFEST))
    trace.write_text("time,qps\n0,100\n600,500\n1500,50\n3000,50\n")
    return manifest, trace


def test_a_trace_is_replayed_against_rivals_and_written_down(files, tmp_path, capsys) -> None:
    manifest, trace = files
    out = tmp_path / "out"
    arguments = ["simulate", "-f", str(manifest), "--trace", str(trace), "--cold-start", "30s", "--against", "hpa,keda"]
    assert main([*arguments, "--faults", "down@20m+2m", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "simulation" in text
    assert [line.split()[0] for line in text.splitlines() if "%" in line][:3] == ["slipway", "hpa", "keda"]
    assert "ScaledUp" in text
    with (out / "replay.csv").open() as file:
        assert {row["policy"] for row in csv.DictReader(file)} == {"slipway", "hpa", "keda"}
    assert (out / "replay.png").stat().st_size > 10_000


def test_without_matplotlib_everything_but_the_picture_is_there(files, tmp_path, capsys, monkeypatch) -> None:
    manifest, trace = files
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status = main(["simulate", "-f", str(manifest), "--trace", str(trace), "--out", str(tmp_path / "out")])
    assert status == 1
    assert "pip install matplotlib" in capsys.readouterr().err
    assert (tmp_path / "out" / "replay.csv").exists()


@pytest.mark.parametrize(
    ("change", "flags", "problem"),
    [
        ({"mode": "None"}, (), "leaves nothing to Slipway"),
        ({"qps": {}}, (), "--capacity is needed"),
        ({"minReplicas": 30}, (), "minReplicas"),
        ({}, ("--cold-start", "soon"), "--cold-start: 'soon' is no duration"),
        ({}, ("--against", "vpa"), "vpa is not among"),
        ({}, ("--prometheus-url", "http://p"), "either --trace FILE or --prometheus-url"),
    ],
)
def test_what_cannot_be_replayed_is_told(files, tmp_path, capsys, change, flags, problem) -> None:
    manifest, trace = files
    changed = {**MANIFEST, "spec": {**MANIFEST["spec"], "autoscaling": {**MANIFEST["spec"]["autoscaling"], **change}}}
    manifest.write_text(yaml.safe_dump(changed))
    assert main(["simulate", "-f", str(manifest), "--trace", str(trace), *flags]) == 1
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ("--scale", "nan"), ("--scale", "-1"), ("--scale", "0"), ("--scale", "inf"), ("--scale", "1e300"),
        ("--capacity", "nan"), ("--capacity", "0"), ("--capacity", "inf"), ("--replicas", "-1"), ("--places", "-1"),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_refused_by_the_name_of_its_flag(files, capsys, flags) -> None:
    manifest, trace = files
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "-f", str(manifest), "--trace", str(trace), *flags])
    assert ended.value.code == 2
    assert f"argument {flags[0]}: {flags[1]} is " in capsys.readouterr().err


def test_a_range_is_read_from_prometheus() -> None:
    class Ranges(FakePrometheus):
        def answer(self, query: str, now: float) -> bytes:
            assert (query, now) == ("(sum(x))[60s:15s]", 1_700_000_060.0)
            values = [[1_700_000_000.0 + 15 * step, str(step)] for step in range(5)]
            return self._wrapped(query, "matrix", [{"metric": {}, "values": values}])

    with serving(Ranges()) as url:
        load = _from_prometheus(url, "sum(x)", "2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")
    assert load.duration == 75
    assert (load.rates[0], load.rates[20], load.rates[-1]) == (0.0, 1.0, 4.0)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>", "Prometheus"),
        (b"{}", "not of Prometheus' form"),
        (b'{"data": {"result": [1, "2"]}}', "no list of series"),
        (b'{"data": {"result": []}}', "gives 0 series"),
    ],
)
def test_an_answer_that_is_no_load_is_told(body: bytes, problem: str) -> None:
    with serving(FakePrometheus(body=body)) as url, pytest.raises(SlipwayError, match=problem):
        _from_prometheus(url, "sum(x)", "2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")


def test_a_range_of_years_is_not_asked_for() -> None:
    with pytest.raises(SlipwayError, match="more than 14 days"):
        _from_prometheus("http://nobody", "x", "2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
