"""Whatever pods and scrapes do, no request is counted twice and none that was not asked."""

from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.analysis import assess
from slipway.api.rollout import Analysis, Check, MetricKind
from slipway.api.samples import CounterSeries, MetricsView, RevisionMetrics
from slipway.api.status import CheckStatus

from tests.analysis.traffic import CANDIDATE, STABLE

INTERVAL = 15.0
END = 1200.0
COUNTING_FROM = 150.0
ANALYSIS = Analysis(checks=(Check(name="errors", metric=MetricKind.ERROR_RATE),))

PODS = st.lists(
    st.fixed_dictionaries(
        {
            "begin": st.sampled_from([0.0, 0.0, 400.0, 700.0]),
            "offset": st.floats(0, 14.9),
            "good": st.integers(0, 9),
            "bad": st.integers(0, 3),
            "first_bad": st.floats(0, END),
            "restarts": st.lists(st.floats(0, END), max_size=3),
            "missed": st.sets(st.integers(0, 80), max_size=25),
        }
    ),
    min_size=1,
    max_size=3,
)


def scraped(pod):
    """The pod's counters as scraped, and what really was asked after counting began, all and bad."""
    times = [at for n in range(81) if (at := pod["offset"] + INTERVAL * n) >= pod["begin"] and n not in pod["missed"]]
    codes: dict[str, list[tuple[float, float]]] = {"200": [], "500": []}
    for at in times:
        started = max([pod["begin"], *(restart for restart in pod["restarts"] if restart <= at)])
        for code, value in (("200", asked(pod, started, at)[0]), ("500", asked(pod, started, at)[1])):
            if value:
                codes[code].append((at, float(value)))
    truth = asked(pod, max(pod["begin"], COUNTING_FROM), END)
    return times, codes, truth


def asked(pod, begin, end):
    """Requests between two times, one batch every ten seconds: good and bad."""
    beats = [beat for beat in range(0, int(END), 10) if begin < beat + 0.5 <= end]
    return pod["good"] * len(beats), pod["bad"] * sum(1 for beat in beats if beat >= pod["first_bad"])


def revision(name, histories, now):
    scrapes, requests = {}, []
    for place, (times, codes, _) in enumerate(histories):
        seen = tuple(at for at in times if now - 300 <= at <= now)
        if not seen:
            continue
        scrapes[f"{name}-{place}"] = seen
        for code, samples in codes.items():
            within = tuple(sample for sample in samples if now - 300 <= sample[0] <= now)
            if within:
                requests.append(CounterSeries(f"{name}-{place}", code, within))
    return RevisionMetrics(name, scrapes=scrapes, requests=tuple(requests))


@settings(max_examples=40, deadline=None)
@given(PODS, PODS, st.lists(st.integers(0, 1200), max_size=25))
def test_evidence_is_never_more_than_what_was_asked(candidate, stable, looks):
    # A pod that comes later is known not to have been there only while another one is scraped.
    steady = {"begin": 0.0, "offset": 7.0, "good": 1, "bad": 0, "first_bad": 0.0, "restarts": [], "missed": set()}
    pods = {CANDIDATE: candidate, STABLE: [*stable, steady]}
    arms = {name: [scraped(pod) for pod in members] for name, members in pods.items()}
    previous: tuple[CheckStatus, ...] = ()
    for now in sorted({*looks, *range(60, 1200, 120), 1200}):
        revisions = {name: revision(name, histories, now) for name, histories in arms.items()}
        previous = assess(
            ANALYSIS,
            previous,
            rollout_id="r",
            candidate=CANDIDATE,
            stable=STABLE,
            metrics=MetricsView(float(now), True, "", INTERVAL, revisions),
            counting_from=COUNTING_FROM,
            now=float(now),
        ).checks
    for counted, histories in ((previous[0].candidate, arms[CANDIDATE]), (previous[0].stable, arms[STABLE])):
        truths = [truth for _, _, truth in histories]
        assert counted.bad <= sum(bad for _, bad in truths)
        assert counted.requests <= sum(good + bad for good, bad in truths)
    assert previous[0].stable.requests > 0
