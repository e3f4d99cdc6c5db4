"""The archive of a torch.export program: read its signature, refuse what would run code on loading.

``torch.export.load`` falls back to full unpickling, compiles guard strings and evaluates shape
expressions. A digest says that the file is the intended one; this scan is the second fence.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway_runtime.artefact.expressions import is_harmless_expression
from slipway_runtime.artefact.pickles import foreign_globals
from slipway_runtime.refusal import Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Shape, TensorSpec

MAX_ENTRIES = 100_000
MAX_JSON_BYTES = 256 * 1024 * 1024
_NATIVE_CODE = (".so", ".o", ".cpp", ".cubin", ".ptx", ".py", ".pyc", ".dll", ".dylib")
# torch._export.serde.schema.ScalarType
_SCALAR_TYPES = {
    1: Datatype.UINT8,
    2: Datatype.INT8,
    3: Datatype.INT16,
    4: Datatype.INT32,
    5: Datatype.INT64,
    6: Datatype.FP16,
    7: Datatype.FP32,
    8: Datatype.FP64,
    12: Datatype.BOOL,
    13: Datatype.BF16,
    28: Datatype.UINT16,
    34: Datatype.UINT32,
    35: Datatype.UINT64,
}


@dataclass(frozen=True)
class ExportedSignature:
    """Inputs (the first ``positional`` of them by position, the others by keyword), outputs, largest batch."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    positional: int
    max_rows: int | None


def scan(path: Path) -> ExportedSignature:
    """Read the signature of the program at ``path``. Raises Refusal (UnsafeModel, UnsupportedModel)."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = _checked_names(archive)
            _check_pickles(archive, names)
            _check_configs(archive, names)
            document = _program(archive, names)
    except (zipfile.BadZipFile, NotImplementedError, RecursionError, ValueError, TypeError, AttributeError) as error:
        raise Refusal("NotAModel", "the archive of the exported program is damaged") from error
    _check_expressions(document)
    try:
        return _signature(document)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Refusal(
            "UnsupportedModel", "the exported program's signature is not one of tensors, or of another schema"
        ) from error


def _checked_names(archive: zipfile.ZipFile) -> list[str]:
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(entries) > MAX_ENTRIES:
        raise Refusal("UnsafeModel", f"the archive has more than {MAX_ENTRIES} entries")
    if len(set(names)) != len(names):
        raise Refusal("UnsafeModel", "the archive holds a name twice")
    for entry in entries:
        parts = entry.filename.split("/")
        if entry.filename.startswith("/") or ".." in parts or "\\" in entry.filename:
            raise Refusal("UnsafeModel", "the archive holds a path that leads out of it")
        # PyTorch stores, it never compresses: this also rules out archives that grow on reading.
        if entry.compress_type != zipfile.ZIP_STORED:
            raise Refusal("UnsafeModel", "the archive is compressed, PyTorch writes archives that are not")
        if entry.filename.endswith(_NATIVE_CODE):
            raise Refusal("UnsafeModel", f"the archive holds code ({parts[-1]}), which this server does not run")
    return names


def _check_pickles(archive: zipfile.ZipFile, names: list[str]) -> None:
    """Sample inputs and tensor subclasses are nested torch files with a pickle in them."""
    for name in names:
        if name.endswith((".pt", ".pkl", ".pth")):
            with archive.open(name) as entry:
                found = foreign_globals(entry.read())
            if found:
                raise Refusal("UnsafeModel", f"{name} would call {found[0]} on loading")


def _check_configs(archive: zipfile.ZipFile, names: list[str]) -> None:
    for name in names:
        if not name.endswith("_config.json"):
            continue
        config = json.loads(_read_json(archive, name)).get("config", {})
        for entry in config.values():
            if not isinstance(entry, dict) or entry.get("use_pickle") is not False:
                raise Refusal("UnsafeModel", f"{name} stores weights as pickles")


def _read_json(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_JSON_BYTES:
        raise Refusal("UnsafeModel", f"{name} is larger than {MAX_JSON_BYTES} bytes")
    return archive.read(name)


def _program(archive: zipfile.ZipFile, names: list[str]) -> dict[str, Any]:
    programs = [name for name in names if "/models/" in name and name.endswith(".json")]
    if len(programs) != 1:
        raise Refusal("UnsupportedModel", f"the archive holds {len(programs)} programs, one is needed")
    document = json.loads(_read_json(archive, programs[0]))
    if not isinstance(document, dict):
        raise Refusal("NotAModel", "the program in the archive is not a JSON object")
    return document


def _check_expressions(node: Any) -> None:
    """Guards are compiled and shape expressions evaluated on loading: only arithmetic may be in them."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, list):
            stack.extend(current)
        elif isinstance(current, dict):
            for key, value in current.items():
                texts = value if key == "guards_code" else [value] if key == "expr_str" else []
                for text in texts or []:
                    if not is_harmless_expression(text):
                        raise Refusal("UnsafeModel", "the program holds a guard or shape that is no arithmetic")
                stack.append(value)


def _signature(document: dict[str, Any]) -> ExportedSignature:
    graph_module = document["graph_module"]
    values = graph_module["graph"]["tensor_values"]
    signature = graph_module["signature"]
    input_names = [_argument(spec["user_input"]) for spec in signature["input_specs"] if "user_input" in spec]
    output_ids = [_argument(spec["user_output"]) for spec in signature["output_specs"] if "user_output" in spec]
    root = next(entry["signature"] for entry in graph_module["module_call_graph"] if entry["fqn"] == "")
    positional, keywords = _call_convention(root["in_spec"])
    own_names = input_names[:positional] + keywords
    output_names = _output_names(root["out_spec"], len(output_ids))
    inputs = tuple(_spec(name, values[key]) for name, key in zip(own_names, input_names, strict=True))
    outputs = tuple(_spec(name, values[key]) for name, key in zip(output_names, output_ids, strict=True))
    return ExportedSignature(inputs, outputs, positional, _max_rows(document, inputs, values, input_names))


def _argument(spec: dict[str, Any]) -> str:
    """The graph's name of a tensor argument; KeyError for anything that is no tensor."""
    name: str = spec["arg"]["as_tensor"]["name"]
    return name


def _call_convention(in_spec: str) -> tuple[int, list[str]]:
    """Number of positional inputs and names of keyword inputs; ValueError where inputs are nested."""
    _, (arguments, keywords) = (lambda tree: (tree["type"], tree["children_spec"]))(json.loads(in_spec)[1])
    if any(leaf["type"] is not None for leaf in arguments["children_spec"] + keywords["children_spec"]):
        raise ValueError("nested inputs")
    return len(arguments["children_spec"]), json.loads(keywords["context"] or "[]")


def _output_names(out_spec: str, count: int) -> list[str]:
    tree = json.loads(out_spec)[1]
    if tree["type"] == "builtins.dict":
        return [str(name) for name in json.loads(tree["context"])]
    return [f"output_{index}" for index in range(count)]


def _spec(name: str, value: dict[str, Any]) -> TensorSpec:
    return TensorSpec(name, _SCALAR_TYPES[value["dtype"]], _shape(value))


def _shape(value: dict[str, Any]) -> Shape:
    return tuple(size.get("as_int", -1) for size in value["sizes"])


def _max_rows(
    document: dict[str, Any], inputs: tuple[TensorSpec, ...], values: dict[str, Any], names: list[str]
) -> int | None:
    """The upper end of dimension 0, where the exporter knew one."""
    if not inputs or not inputs[0].shape or inputs[0].shape[0] != -1:
        return None
    text = values[names[0]]["sizes"][0]["as_expr"]["expr_str"]
    ranges = document.get("range_constraints", {})
    for symbol, bounds in ranges.items():
        if f"'{symbol}'" in text or text == symbol:
            upper = bounds.get("max_val")
            return int(upper) if upper is not None else None
    return None
