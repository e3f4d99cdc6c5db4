"""The forms in which news is sent: a CloudEvent 1.0 in structured JSON, or a message as Slack takes it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cloudevents.core.bindings.http import to_structured_event
from cloudevents.core.v1.event import CloudEvent

from slipway.api.timestamps import parse_time
from slipway.notifications.news import News, NewsKind
from slipway.notifications.receivers import ReceiverType

__all__ = ["Message", "Subject", "message_of"]

TYPE = "dev.slipway.modeldeployment."
"""Prefix of the types of CloudEvents; the kind of news in lower case follows."""
TEXT_LIMIT = 2000
"""Characters of a chat message; Slack takes 40000, others fewer."""

_TITLES = {
    NewsKind.STARTED: "Started",
    NewsKind.STEP: "Step",
    NewsKind.PAUSED: "Paused",
    NewsKind.ROLLED_BACK: "Rolled back",
    NewsKind.PROMOTED: "Promoted",
    NewsKind.LIMIT: "At the limit",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The ModelDeployment that news is of."""

    namespace: str
    name: str
    uid: str
    cluster: str = ""
    """Name of the cluster, where the installation gives one."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is posted."""

    id: str
    """Identity of the news: the same each time it is sent."""
    content_type: str
    body: bytes


def message_of(news: News, subject: Subject, form: ReceiverType, now: float) -> Message:
    """News in the form that a receiver takes; ``now`` stands in where nobody knows when it happened."""
    identity = f"{subject.uid}/{news.transition}"
    if form is ReceiverType.SLACK:
        body = json.dumps({"text": _chat_text(news, subject)}, ensure_ascii=False).encode()
        return Message(identity, "application/json; charset=utf-8", body)
    structured = to_structured_event(_cloud_event(identity, news, subject, now))
    body = structured.body if isinstance(structured.body, bytes) else str(structured.body).encode()
    return Message(identity, structured.headers["content-type"], body)


def _cloud_event(identity: str, news: News, subject: Subject, now: float) -> CloudEvent:
    at = parse_time(news.at)
    where: dict[str, Any] = {"namespace": subject.namespace, "name": subject.name, "uid": subject.uid}
    if subject.cluster:
        where["cluster"] = subject.cluster
    return CloudEvent(
        {
            "specversion": "1.0",
            "id": identity,
            "source": _source(subject),
            "type": TYPE + news.kind.value.lower(),
            "subject": f"{subject.namespace}/{subject.name}",
            "time": datetime.fromtimestamp(now if at is None else at, UTC),
            "datacontenttype": "application/json",
        },
        {"event": news.kind.value, "modelDeployment": where, "text": news.text, **news.facts},
    )


def _source(subject: Subject) -> str:
    path = f"/apis/slipway.dev/v1alpha1/namespaces/{subject.namespace}/modeldeployments/{subject.name}"
    return f"//{subject.cluster}{path}" if subject.cluster else path


def _chat_text(news: News, subject: Subject) -> str:
    cluster = f" in {subject.cluster}" if subject.cluster else ""
    text = f"{subject.namespace}/{subject.name}{cluster}: {news.text}"
    return f"*{_TITLES[news.kind]}* {_plain(text[:TEXT_LIMIT])}"


def _plain(text: str) -> str:
    """Text that calls nobody and links nowhere: parts of it come from servers and pipelines of others.

    Slack's own marks need three characters escaped; compatible systems read ``@all`` without any mark.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", "@\u200b")
