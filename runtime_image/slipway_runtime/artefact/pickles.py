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
_GETS, _PUTS = ("GET", "BINGET", "LONG_BINGET"), ("PUT", "BINPUT", "LONG_BINPUT")
_NEUTRAL = ("PROTO", "FRAME")
"""Opcodes that leave the stack as it is."""


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
    operands = _Operands()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                found.append(str(argument))
            elif opcode.name == "STACK_GLOBAL":
                found.append(operands.name)
            elif opcode.name in ("INST", "OBJ", "EXT1", "EXT2", "EXT4"):
                found.append(opcode.name)
            operands.see(opcode.name, argument)
    except Exception:
        return ["something unreadable"]
    return [name for name in found if name not in _ALLOWED and name not in _DTYPES]


class _Operands:
    """What the last two opcodes pushed, if that is known: texts, written out or taken from the memo.

    An opcode between them, or between them and the one that uses them, may have put anything in their place. So what is
    not known for certain has no name that is allowed.
    """

    def __init__(self) -> None:
        self._pushed: list[str | None] = []
        self._memo: dict[int, str | None] = {}

    @property
    def name(self) -> str:
        """Module and name that a STACK_GLOBAL would look up."""
        module, name = self._pushed[-2:] if len(self._pushed) > 1 else (None, None)
        return "something unnamed" if module is None or name is None else f"{module} {name}"

    def see(self, opcode: str, argument: object) -> None:
        """Take in one opcode."""
        if opcode in _STRINGS:
            self._pushed.append(str(argument))
        elif opcode in _GETS:
            self._pushed.append(self._memo.get(_index(argument)))
        elif opcode == "MEMOIZE":
            self._memo[len(self._memo)] = self._pushed[-1] if self._pushed else None
        elif opcode in _PUTS:
            self._memo[_index(argument)] = self._pushed[-1] if self._pushed else None
        elif opcode not in _NEUTRAL:
            self._pushed.clear()


def _index(argument: object) -> int:
    return int(str(argument))
