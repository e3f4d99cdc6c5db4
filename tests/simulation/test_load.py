"""Loads from files."""

from pathlib import Path

import pytest
from slipway.api.errors import SlipwayError
from slipway.simulation.load import load_of_points, read_load

TRACE = Path(__file__).parents[1] / "data" / "traces" / "azure-llm-2023-conv.csv"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_the_recorded_trace_of_arrivals() -> None:
    load = read_load(TRACE)
    assert load.requests == 19_366
    assert 57 * 60 < load.duration < 60 * 60


def test_rates_hold_until_the_next_row(tmp_path: Path) -> None:
    load = read_load(written(tmp_path, "time,qps\n0,10\n2,4\n5,0\n"))
    assert load.rates == (10.0, 10.0, 4.0, 4.0, 4.0, 0.0, 0.0)


def test_counts_are_spread_until_the_next_row(tmp_path: Path) -> None:
    load = read_load(written(tmp_path, "timestamp,requests\n2026-03-01T00:00:00Z,120\n2026-03-01T00:01:00Z,60\n"))
    assert (load.rates[0], load.rates[-1], load.requests) == (2.0, 1.0, 180.0)


def test_rows_of_one_time_are_all_counted(tmp_path: Path) -> None:
    """One row per status code, say."""
    load = read_load(written(tmp_path, "time,requests\n0,100\n0,20\n10,50\n10,10\n"))
    assert load.requests == pytest.approx(180.0)
    assert load.rates == (12.0,) * 10 + (6.0,) * 10
    assert read_load(written(tmp_path, "time,qps\n0,4\n0,10\n5,2\n5,1\n")).rates == (10.0,) * 5 + (2.0,) * 5


def test_rows_in_any_order_without_a_value_are_arrivals(tmp_path: Path) -> None:
    assert read_load(written(tmp_path, "t\n3.5\n1.0\n1.5\n")).rates == (2.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("when,rate\n1,2\n", "no column is named timestamp"),
        ("t,rate\n1,x\n", "line 2"),
        ("t,rate\n1,-5\n", "no number of requests"),
        ("t,rate\n1,nan\n", "no number of requests"),
        ("t,rate\nsoon,1\n", "line 2"),
        ("t,rate\n0,1e300\n", "no number of requests"),
        ("t\n1\nnan\n", "line 3: nan is no time"),
        ("t,rate\n0,1\ninf,1\n", "line 3: inf is no time"),
        ("t,rate\n1767225600000,1\n", "is no time in seconds"),
        ("t,rate\n1,0\n2,0\n", "holds no requests"),
        ("t,rate\n", "holds no requests"),
        ("t,rate\n0,1\n99999999,1\n", "longer than 14 days"),
    ],
)
def test_a_file_without_a_load_says_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SlipwayError, match=problem):
        read_load(written(tmp_path, text))


def test_a_missing_file_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match="No such file"):
        read_load(tmp_path / "nothing.csv")


def test_points_of_prometheus() -> None:
    assert load_of_points("p", [(30.0, 2.0), (0.0, 1.0), (15.0, float("nan"))]).rates == (
        *(1.0,) * 15, *(0.0,) * 15, *(2.0,) * 15,
    )  # fmt: skip
