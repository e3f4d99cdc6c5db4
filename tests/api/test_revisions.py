from copy import deepcopy
from typing import Any

import pytest
from slipway.api.revisions import definition_of, revision_from_definition, revision_of

SPEC: dict[str, Any] = {
    "versions": [
        {"name": "v1", "uri": "file:///1", "runtime": {"limits": {"timeout": "5s"}, "args": ["--x"]}},
        {"name": "v2", "uri": "file:///2"},
    ],
    "runtime": {"limits": {"timeout": "30s", "maxQueue": 9}, "args": ["--y"], "device": "cpu"},
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    spec = deepcopy(SPEC)
    here: Any = spec
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = to
    return spec


def test_a_versions_settings_lie_over_the_runtime() -> None:
    revision = revision_of("m", SPEC, "v1")
    assert revision.runtime.limits.timeout == "5s"
    assert revision.runtime.limits.max_queue == 9
    assert revision.runtime.args == ("--x",)
    assert revision.runtime.device == "cpu"


def test_the_name_is_the_hash_of_what_was_written() -> None:
    assert revision_of("m", SPEC, "v1").name == "m-v1-" + revision_of("other", SPEC, "v1").name.rpartition("-")[2]
    reordered = {
        key: dict(reversed(value.items())) if isinstance(value, dict) else value for key, value in SPEC.items()
    }
    assert revision_of("m", reordered, "v1").name == revision_of("m", SPEC, "v1").name


@pytest.mark.parametrize(
    "spec",
    [
        changed("versions", 0, "signature", to={"publicKey": {"configMap": "k"}}),
        changed("versions", 0, "uri", to="file:///other"),
        changed("versions", 0, "runtime", "limits", "timeout", to="6s"),
        changed("runtime", "device", to="cuda"),
        changed("runtime", "limits", "maxQueue", to=512),
    ],
)
def test_a_change_of_the_definition_changes_the_name(spec: dict[str, Any]) -> None:
    assert revision_of("m", spec, "v1").name != revision_of("m", SPEC, "v1").name


@pytest.mark.parametrize(
    "spec",
    [
        changed("versions", 1, "uri", to="file:///other"),
        changed("serve", to="v2"),
        changed("runtime", "limits", "timeout", to="31s"),
    ],
)
def test_what_does_not_concern_the_pods_does_not(spec: dict[str, Any]) -> None:
    assert revision_of("m", spec, "v1").name == revision_of("m", SPEC, "v1").name


def test_the_name_is_pinned_against_new_releases() -> None:
    """A default or a field that is added to the types must not restart pods."""
    assert revision_of("m", SPEC, "v2").name == "m-v2-48f26e2b"


def test_a_stored_definition_gives_the_same_revision() -> None:
    revision = revision_of("m", SPEC, "v1")
    assert revision_from_definition("m", revision.data) == revision


def test_a_version_that_is_gone_is_told() -> None:
    with pytest.raises(KeyError):
        definition_of(SPEC, "v3")
