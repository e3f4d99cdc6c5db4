"""The users' own expressions: asked one by one, and never in the way of the metrics that all depend on."""

import pytest
from slipway.api.samples import Quality
from slipway.metrics import PrometheusSource

from tests.metrics.prometheus import FakePrometheus, serving
from tests.metrics.test_snapshot import NOW, alive

OWNER = ("nlp", "sentiment")


async def ask(fake, *queries, times=(NOW,)):
    with serving(fake) as url:
        source = PrometheusSource(url)
        source.want(*OWNER, queries)
        try:
            for now in times:
                snapshot = await source.snapshot(now)
        finally:
            source.close()
    return snapshot.view(*OWNER)


async def test_a_value_and_when_it_was_asked():
    view = await ask(FakePrometheus([alive("p-0")], values={"clicks": ["12.5"]}), "clicks")
    sample = view.queries["clicks"]
    assert (sample.value, sample.quality, sample.at) == (12.5, Quality.OK, NOW)


@pytest.mark.parametrize(
    ("values", "words"),
    [([], "has no value"), (["1", "2"], "has 2 values"), (["NaN"], "is nan"), (["+Inf"], "is inf")],
)
async def test_what_is_no_single_number_is_no_value(values, words):
    view = await ask(FakePrometheus(values={"clicks": values}), "clicks")
    assert not view.queries["clicks"].ok
    assert words in view.queries["clicks"].reason


async def test_a_wrong_expression_harms_nobody():
    view = await ask(FakePrometheus([alive("p-0")]), "nonsense(")
    assert view.available
    assert not view.queries["nonsense("].ok


async def test_a_value_of_an_answer_that_may_lack_series_is_not_judged():
    """As Thanos gives while it does not reach a store: errors that lie there are none in the sum."""
    view = await ask(FakePrometheus(values={"clicks": ["0"]}, warnings={"clicks": ["store is away"]}), "clicks")
    sample = view.queries["clicks"]
    assert (sample.quality, sample.reason) == (Quality.PARTIAL, "the answer may be incomplete: store is away")


async def test_what_is_no_longer_wanted_is_no_longer_asked():
    fake = FakePrometheus(values={"a": ["1"], "b": ["2"]})
    with serving(fake) as url:
        source = PrometheusSource(url)
        source.want(*OWNER, ["a"])
        source.want("nlp", "other", ["b"])
        assert set((await source.snapshot(NOW)).queries) == {"a", "b"}
        source.want(*OWNER, ())
        assert set((await source.snapshot(NOW + 5)).queries) == {"b"}
        assert fake.queries.count("a") == 1
        source.close()


async def test_many_take_turns():
    names = [f"q{number}" for number in range(40)]
    fake = FakePrometheus(values={name: ["1"] for name in names})
    view = await ask(fake, *names)
    assert len(view.queries) == 32
    fake.queries.clear()
    view = await ask(fake, *names, times=(NOW, NOW + 5))
    assert len(view.queries) == 40
    assert len([query for query in fake.queries if query in names]) == 64
