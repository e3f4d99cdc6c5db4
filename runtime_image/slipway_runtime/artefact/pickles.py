"""Which functions a pickle would call, found by reading its opcodes and without running any."""

from __future__ import annotations

import io
import pickletools
import zipfile

_ALLOWED = frozenset(
    {
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        "torch._utils _rebuild_parameter_with_state",
        "torch._tensor _rebuild_from_type_v2",
        "torch Tensor",  # the type of a tensor with attributes, as torch.export gives sample inputs of dynamic shapes
        "torch Size",
        "torch device",
        *(
            f"torch {kind}Storage"
            for kind in (
                "Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool", "Untyped",
            )
        ),
    }
)  # fmt: skip
_DTYPES = frozenset(
    f"torch {name}"
    for name in (
        "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8",
        "uint8", "uint16", "uint32", "uint64", "bool",
    )
)  # fmt: skip
_STRINGS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING")


def foreign_globals(data: bytes) -> list[str]:
    """Names in a pickle (plain, or inside a torch file) beyond those that plain tensors need.

    What cannot be read counts as foreign.
    """
    if not data:
        return []
    if not data.startswith(b"PK\x03\x04"):
        return _foreign_in_pickle(data)
    found: list[str] = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    return ["a compressed archive"]
                if entry.filename.endswith(".pkl"):
                    found += _foreign_in_pickle(archive.read(entry))
    except zipfile.BadZipFile:
        return ["a damaged archive"]
    return found


def _foreign_in_pickle(data: bytes) -> list[str]:
    found: list[str] = []
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in _STRINGS:
                strings.append(str(argument))
            elif opcode.name == "GLOBAL":
                found.append(str(argument))
            elif opcode.name == "STACK_GLOBAL":
                # Its two operands may come through the memo; without them it is not known, so foreign.
                found.append(" ".join(strings[-2:]) if len(strings) > 1 else "something unnamed")
            elif opcode.name in ("INST", "OBJ", "EXT1", "EXT2", "EXT4"):
                found.append(opcode.name)
    except Exception:
        return ["something unreadable"]
    return [name for name in found if name not in _ALLOWED and name not in _DTYPES]
