from pathlib import Path

import pytest
from slipway.notifications.news import NewsKind
from slipway.notifications.receivers import ReceiverError, ReceiverType, receivers_of

FULL = """
- name: ops
  type: slack
  urlFile: {folder}/url
  events: [RolledBack, Promoted]
  namespaces: [nlp]
- name: pipeline
  type: webhook
  url: https://events.example/slipway
  tokenFile: {folder}/token
"""


def test_what_can_be_said(tmp_path: Path):
    (tmp_path / "url").write_text("https://chat.example/T0/secret\n")
    (tmp_path / "token").write_text("t0ken\n")
    ops, pipeline = receivers_of(FULL.format(folder=tmp_path))
    assert (ops.type, ops.address(), ops.token()) == (ReceiverType.SLACK, "https://chat.example/T0/secret", "")
    assert ops.wants(NewsKind.PROMOTED, "nlp")
    assert not ops.wants(NewsKind.STEP, "nlp")
    assert not ops.wants(NewsKind.PROMOTED, "vision")
    assert (pipeline.address(), pipeline.token()) == ("https://events.example/slipway", "t0ken")
    assert all(pipeline.wants(kind, "anywhere") for kind in NewsKind)


def test_a_changed_secret_is_taken_up(tmp_path: Path):
    (tmp_path / "url").write_text("https://old.example/")
    (tmp_path / "token").write_text("")
    ops = receivers_of(FULL.format(folder=tmp_path))[0]
    (tmp_path / "url").write_text("https://new.example/")
    assert ops.address() == "https://new.example/"


def test_from_a_file_and_from_the_environment(tmp_path: Path):
    (tmp_path / "list").write_text('[{"name": "a", "type": "webhook", "urlEnv": "HOOK"}]')
    (receiver,) = receivers_of(f"@{tmp_path}/list")
    assert receiver.address({"HOOK": "http://hook.svc/"}) == "http://hook.svc/"
    with pytest.raises(ReceiverError, match=r"\$HOOK of receiver a is no http or https URL"):
        receiver.address({})
    assert receivers_of("") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "neither JSON nor YAML"),
        ("{}", "a list of receivers"),
        ("[1]", r"notifications\[0\] is no mapping"),
        ("[{name: a, type: webhook}]", "exactly one of url, urlFile, urlEnv"),
        ("[{name: a, type: webhook, url: 'http://a/', urlEnv: B}]", "exactly one of"),
        ("[{type: webhook, urlEnv: B}]", "needs a name"),
        ("[{name: 5, type: webhook, urlEnv: B}]", "name is no text"),
        ("[{name: a, type: mail, urlEnv: B}]", "'mail' is none of webhook, slack"),
        ("[{name: a, type: slack, urlEnv: B, events: [Deleted]}]", "'Deleted' is none of Started, Step"),
        ("[{name: a, type: slack, urlEnv: B, events: Step}]", "events is no list"),
        ("[{name: a, type: slack, urlEnv: B, secret: x}]", "unknown field secret"),
        ("[{name: a, type: slack, url: 'file:///etc/passwd'}]", "the url of receiver a is no http or https URL"),
        ("[{name: a, type: slack, urlEnv: B}, {name: a, type: slack, urlEnv: C}]", "two receivers are named a"),
        ("@/nowhere", "/nowhere cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, problem: str):
    with pytest.raises(ReceiverError, match=problem):
        receivers_of(text)
