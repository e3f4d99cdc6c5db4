"""Triton's repository layout: ``config.pbtxt`` beside numbered folders with the model in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipway_runtime.artefact.description import Description, inside, read_text
from slipway_runtime.artefact.format import identify
from slipway_runtime.refusal import Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import TensorSpec

CONFIG_FILE = "config.pbtxt"
_TOKEN = re.compile(r"""\s+|\#[^\n]*|(?P<token>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\]:,;]|[\w.+-]+)""")
_MODEL_NAMES = {"pytorch_libtorch": "model.pt", "onnxruntime_onnx": "model.onnx"}
_BACKENDS = {"pytorch": "model.pt", "onnxruntime": "model.onnx"}
_MAX_DEPTH = 20

Message = dict[str, list[Any]]
"""Fields of a text-format message; every field may be repeated."""


def fits(folder: Path) -> bool:
    """Whether the folder is a model of a Triton repository."""
    return (folder / CONFIG_FILE).is_file()


def describe(folder: Path, version: str = "") -> Description:
    """That version of the model, or the newest. Raises Refusal."""
    config = parse_text_format(read_text(folder / CONFIG_FILE))
    name = _first(config, "default_model_filename") or _default_name(config)
    file = inside(folder, f"{version or _versions(folder)[-1]}/{name}")
    try:
        instances = sum(int(_first(group, "count") or 1) for group in config.get("instance_group", []))
        rows = int(_first(config, "max_batch_size") or 0)
        inputs, outputs = _specs(config.get("input", []), rows), _specs(config.get("output", []), rows)
    except (KeyError, ValueError, TypeError) as error:
        raise Refusal("BadModelConfig", f"{CONFIG_FILE}: inputs and outputs need name, data_type and dims") from error
    return Description(
        identify(file),
        file,
        folder,
        inputs=inputs,
        outputs=outputs,
        max_rows=rows or None,
        instances=instances or None,
    )


def served_versions(folder: Path) -> list[str]:
    """The versions that the model's ``version_policy`` says to serve: by default the newest. Raises Refusal."""
    there = _versions(folder)
    policy = parse_text_format(read_text(folder / CONFIG_FILE)).get("version_policy", [{}])[0]
    if "all" in policy:
        return there
    if "specific" in policy:
        wanted = {str(version) for version in policy["specific"][0].get("versions", [])}
        return [version for version in there if version in wanted]
    latest = policy.get("latest", [{}])[0]
    return there[-max(1, int(_first(latest, "num_versions") or 1)) :]


def _versions(folder: Path) -> list[str]:
    """The numbered folders, oldest first. Raises Refusal."""
    numbers = sorted(int(path.name) for path in folder.iterdir() if path.is_dir() and path.name.isdigit())
    if not numbers:
        raise Refusal("NotAModel", "the Triton model has no numbered version folder")
    return [str(number) for number in numbers]


def _default_name(config: Message) -> str:
    platform, backend = _first(config, "platform"), _first(config, "backend")
    name = _MODEL_NAMES.get(platform) or _BACKENDS.get(backend)
    if name is None:
        wanted = platform or backend or "not named"
        raise Refusal("FormatNotSupported", f"Triton backend {wanted}: only pytorch and onnxruntime can be served")
    return name


def _first(message: Message, name: str) -> str:
    values = message.get(name, [""])
    return str(values[0])


def _specs(entries: list[Message], max_batch_size: int) -> tuple[TensorSpec, ...] | None:
    """Triton's dims leave the batch out where there is one."""
    batch = (-1,) if max_batch_size else ()
    return (
        tuple(
            TensorSpec(_first(one, "name"), _datatype(_first(one, "data_type")), (*batch, *map(int, one["dims"])))
            for one in entries
        )
        or None
    )


def _datatype(name: str) -> Datatype:
    short = name.removeprefix("TYPE_")
    return Datatype.BYTES if short == "STRING" else Datatype(short)


def parse_text_format(text: str) -> Message:
    """A message in protobuf's text format. Raises Refusal (BadModelConfig)."""
    tokens = list(_tokens(text))
    message, end = _message(tokens, 0, 0)
    if end != len(tokens):
        raise Refusal("BadModelConfig", f"{CONFIG_FILE}: unexpected '{tokens[end]}'")
    return message


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Refusal("BadModelConfig", f"{CONFIG_FILE}: unexpected character {text[position]!r}")
        if match["token"]:
            yield match["token"]
        position = match.end()


def _message(tokens: list[str], at: int, depth: int) -> tuple[Message, int]:
    if depth > _MAX_DEPTH:
        raise Refusal("BadModelConfig", f"{CONFIG_FILE}: nested too deeply")
    message: Message = {}
    while at < len(tokens) and tokens[at] != "}":
        if tokens[at] in ",;":
            at += 1
            continue
        name = tokens[at]
        at = at + 2 if _peek(tokens, at + 1) == ":" else at + 1
        values, at = _values(tokens, at, depth)
        message.setdefault(name, []).extend(values)
    return message, at


def _values(tokens: list[str], at: int, depth: int) -> tuple[list[Any], int]:
    """One value, or the values of a bracketed list."""
    if _peek(tokens, at) != "[":
        value, at = _value(tokens, at, depth)
        return [value], at
    values: list[Any] = []
    at += 1
    while (word := _peek(tokens, at)) != "]":
        if word == ",":
            at += 1
            continue
        value, at = _value(tokens, at, depth)
        values.append(value)
    return values, at + 1


def _value(tokens: list[str], at: int, depth: int) -> tuple[Any, int]:
    word = _peek(tokens, at)
    if word == "{":
        message, end = _message(tokens, at + 1, depth + 1)
        _peek(tokens, end)
        return message, end + 1
    if word in "}]:,;":
        raise Refusal("BadModelConfig", f"{CONFIG_FILE}: a value is missing before '{word}'")
    return word[1:-1] if word[0] in "\"'" else word, at + 1


def _peek(tokens: list[str], at: int) -> str:
    if at >= len(tokens):
        raise Refusal("BadModelConfig", f"{CONFIG_FILE} ends too early")
    return tokens[at]
