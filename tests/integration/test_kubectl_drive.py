"""Every strategy and every verb driven with plain kubectl, by the commands of docs/rollouts.md."""

import json

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

STEPS = [{"weight": 20, "pause": {}}, {"weight": 50, "hold": "1s"}]


async def served(bench, version, strategy, **more):
    """``kubectl patch`` of serve and strategy, as the page on rollouts has it."""
    change = {"spec": {"serve": version, "rollout": {"strategy": strategy, **more}}}
    code, said = await bench.kubectl("patch", "mdep", "m", "--type=merge", "-p", json.dumps(change))
    assert code == 0, said


async def act(bench, verb):
    """``kubectl patch`` of status.action; waits for the answer and returns its result."""
    identity = f"{verb}-{bench.namespace}"
    action = {"status": {"action": {"id": identity, "verb": verb, "by": "ada"}}}
    code, said = await bench.kubectl(
        "patch", "mdep", "m", "--subresource=status", "--type=merge", "-p", json.dumps(action)
    )
    assert code == 0, said
    status = await bench.until("m", f"answer to {verb}", lambda s: s.get("lastAction", {}).get("id") == identity)
    print(f"kubectl: {verb}: {status['lastAction']['result']}: {status['lastAction']['message']}")
    return status["lastAction"]["result"]


async def waits(bench):
    """Wait for a rollout that only a person takes on."""
    await bench.until(
        "m", "a wait for promotion", lambda s: (s.get("rollout") or {}).get("reason") == "AwaitingPromotion"
    )


async def test_every_verb_and_strategy_is_driven_with_kubectl(bench):
    versions = [bench.version("v1"), *(bench.version(f"v{number}", "good-2") for number in (2, 3, 4, 5))]
    await bench.apply(bench.declare("m", *versions, serve="v1", rollout={"steps": STEPS}))
    await bench.serving("m")

    await served(bench, "v2", "Canary")
    await waits(bench)
    assert await act(bench, "Pause") == "Accepted"
    assert await act(bench, "Resume") == "Accepted"
    assert await act(bench, "Abort") == "Accepted"
    await bench.finished("m", "v2", "Aborted")
    assert await act(bench, "Retry") == "Accepted"
    await waits(bench)
    assert await act(bench, "Promote") == "Accepted"
    await bench.finished("m", "v2", "Promoted")
    await bench.serving("m", "v2")

    await served(bench, "v3", "BlueGreen")
    await bench.finished("m", "v3", "Promoted")
    await bench.serving("m", "v3")

    await served(bench, "v4", "Shadow", shadow={"percent": 10})
    await bench.until(
        "m", "v4 is there", lambda s: [e for e in s["versions"] if e["name"] == "v4" and e["readyReplicas"]]
    )
    assert await act(bench, "PromoteFull") == "Accepted"
    await bench.finished("m", "v4", "Promoted")
    await bench.serving("m", "v4")

    await served(bench, "v5", "Recreate", shadow={"percent": 0})
    await bench.finished("m", "v5", "Promoted")
    await bench.serving("m", "v5")
    status = await bench.status("m")
    for entry in status["history"]:
        print(f"history: {entry['id']} {entry.get('from')} to {entry['to']}: {entry['outcome']} by {entry['by']}")
