import json
from datetime import UTC, datetime

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from slipway.notifications.messages import Subject, message_of
from slipway.notifications.news import News, NewsKind
from slipway.notifications.receivers import ReceiverType

NEWS = News(
    NewsKind.ROLLED_BACK,
    "r-000002/ended",
    "2026-01-01T00:00:06.500000Z",
    "rollout of v2 is rolled back, v1 serves: HarmDetected: errors: 12 bad",
    {"rollout": "r-000002", "from": "v1", "to": "v2", "outcome": "RolledBack"},
)
SUBJECT = Subject("nlp", "sentiment", "uid-1", "berlin")


def test_a_cloud_event_by_the_rules_of_its_specification():
    message = message_of(NEWS, SUBJECT, ReceiverType.WEBHOOK, 0.0)
    assert message.content_type == "application/cloudevents+json"
    event = from_http_event(HTTPMessage({"content-type": message.content_type}, message.body))
    assert event.get_specversion() == "1.0"
    assert event.get_id() == "uid-1/r-000002/ended"
    assert event.get_type() == "dev.slipway.modeldeployment.rolledback"
    assert event.get_source() == "//berlin/apis/slipway.dev/v1alpha1/namespaces/nlp/modeldeployments/sentiment"
    assert event.get_subject() == "nlp/sentiment"
    assert event.get_time() == datetime(2026, 1, 1, 0, 0, 6, 500_000, UTC)
    assert event.get_data() == {
        "event": "RolledBack",
        "modelDeployment": {"namespace": "nlp", "name": "sentiment", "uid": "uid-1", "cluster": "berlin"},
        "text": NEWS.text,
        "rollout": "r-000002",
        "from": "v1",
        "to": "v2",
        "outcome": "RolledBack",
    }


def test_the_same_news_is_the_same_message():
    assert message_of(NEWS, SUBJECT, ReceiverType.WEBHOOK, 1.0) == message_of(NEWS, SUBJECT, ReceiverType.WEBHOOK, 2.0)


def test_a_chat_message():
    message = message_of(NEWS, SUBJECT, ReceiverType.SLACK, 0.0)
    assert message.content_type == "application/json; charset=utf-8"
    assert json.loads(message.body) == {"text": f"*Rolled back* nlp/sentiment in berlin: {NEWS.text}"}


def test_a_chat_message_calls_nobody_and_links_nowhere():
    hostile = News(NewsKind.PAUSED, "x", "", "<!channel> <https://evil.example|click> @all & more", {})
    text = json.loads(message_of(hostile, SUBJECT, ReceiverType.SLACK, 0.0).body)["text"]
    assert "<" not in text
    assert ">" not in text
    assert "@all" not in text
    assert "&amp; more" in text


def test_a_long_message_is_cut():
    news = News(NewsKind.PAUSED, "x", "", "x" * 50_000, {})
    assert len(message_of(news, SUBJECT, ReceiverType.SLACK, 0.0).body) < 3000
