"""docs/openapi.yaml says what the server's HTTP port takes: no path or method more or less than the router has."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import slipway_runtime
import yaml
from slipway_runtime.http import routes
from slipway_runtime.protocol.request import MAX_CLASSES, MAX_ELEMENTS, MAX_RANK, MAX_TENSORS, MAX_TEXTS
from slipway_runtime.tensors.datatypes import Datatype

from tests.runtime.harness import ROOT, ServerThread, echo_model, fetch

DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())
METHODS = ("get", "post", "put", "patch", "delete", "options")
NOTHING = b"there is nothing at this path"


def alternatives(pattern: ast.pattern) -> list[str]:
    """What a part of a path may be: the words it is compared with, or anything."""
    match pattern:
        case ast.MatchValue(value=ast.Constant(value=str(word))):
            return [word]
        case ast.MatchOr(patterns=patterns):
            return [word for one in patterns for word in alternatives(one)]
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return alternatives(inner)
        case ast.MatchAs():
            return ["{}"]
    raise AssertionError(ast.dump(pattern))


def sequences(pattern: ast.pattern) -> Iterator[list[ast.pattern]]:
    if isinstance(pattern, ast.MatchSequence):
        yield pattern.patterns
    elif isinstance(pattern, ast.MatchOr):
        for one in pattern.patterns:
            yield from sequences(one)


def cases(function: Any) -> Iterator[list[ast.pattern]]:
    """The sequences that a function's ``match`` statements compare a path with."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.match_case):
            yield from sequences(node.pattern)


def served() -> set[str]:
    """All paths that the router knows, with braces for what may be anything."""
    found = set()
    rests = list(cases(routes._shared_memory))
    for parts in itertools.chain(cases(routes.Router._route), cases(routes.Router._answer)):
        wholes = [parts]
        if isinstance(parts[-1], ast.MatchStar):
            wholes = [[*parts[:-1], *rest] for rest in rests]
        for whole in wholes:
            for words in itertools.product(*map(alternatives, whole)):
                found.add("/" + "/".join(words))
    return found


def documented() -> set[str]:
    return {re.sub(r"\{\w+\}", "{}", path) for path in DOCUMENT["paths"]}


def test_every_path_of_the_router_is_in_the_document_and_no_other() -> None:
    assert len(served()) > 30
    assert documented() == served()


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(echo_model(Datatype.FP32, batched=True)) as started:
        yield started


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_the_methods_of_a_path_are_those_of_the_document(server: ServerThread, path: str) -> None:
    given = {method.upper() for method in METHODS if method in DOCUMENT["paths"][path]}
    address = path.replace("{model}", "my%20model").replace("{version}", "v1").replace("{region}", "r")
    for method in map(str.upper, METHODS):
        status, body, headers = fetch(server.address, method, address, b"")
        assert NOTHING not in body
        assert (status != 405) is (method in given), method
        if status == 405:
            assert set(headers["allow"].split(", ")) - {"HEAD"} == given
    assert (fetch(server.address, "HEAD", address)[0] != 405) is ("GET" in given)


def test_operations_have_names_of_their_own_and_references_lead_somewhere() -> None:
    operations = [item[method] for item in DOCUMENT["paths"].values() for method in METHODS if method in item]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for reference in re.findall(r"#(/components/[\w/]+)", (ROOT / "docs/openapi.yaml").read_text()):
        place = DOCUMENT
        for part in reference.strip("/").split("/"):
            place = place[part]
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_its_figures_are_those_of_the_server() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Datatype"]["enum"] == [str(one) for one in Datatype]
    assert schemas["Shape"]["maxItems"] == MAX_RANK
    assert str(MAX_ELEMENTS) in schemas["Shape"]["description"] and str(MAX_TEXTS) in schemas["Shape"]["description"]
    request = schemas["InferRequest"]["properties"]
    assert request["inputs"]["maxItems"] == request["outputs"]["maxItems"] == MAX_TENSORS
    output = schemas["RequestOutput"]["properties"]["parameters"]["properties"]
    assert output["classification"]["maximum"] == MAX_CLASSES
    assert DOCUMENT["info"]["version"] == slipway_runtime.__version__
