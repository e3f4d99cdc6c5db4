import io
import json
import logging

import pytest
from slipway.engine.logs import context, set_up


@pytest.fixture(autouse=True)
def restored():
    """Leave logging as it was found."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("kopf", "kopf.objects", "aiohttp.access", "asyncio")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def logged(style: str) -> str:
    stream = io.StringIO()
    set_up(style, stream=stream)
    token = context.set({"key": "ns/m", "uid": "u", "generation": 3, "reconcile": 7})
    try:
        logging.getLogger("slipway.test").info("create %s", "Service m")
    finally:
        context.reset(token)
    logging.getLogger("kopf.objects").info("Handler 'pods' succeeded.")
    return stream.getvalue()


def test_json_has_the_fields_of_the_reconcile():
    (line,) = logged("json").splitlines()
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "info",
        "logger": "slipway.test",
        "message": "create Service m",
        "key": "ns/m",
        "uid": "u",
        "generation": 3,
        "reconcile": 7,
    }


def test_text_is_short():
    (line,) = logged("text").splitlines()
    assert line[12:] == " INFO    [ns/m] create Service m"


def test_what_is_no_terminal_gets_json():
    assert logged("auto").startswith("{")


@pytest.mark.parametrize("style", ["json", "text"])
def test_exceptions_are_told(style):
    stream = io.StringIO()
    set_up(style, stream=stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("slipway.test").exception("failed")
    assert "ValueError: broken" in stream.getvalue()
