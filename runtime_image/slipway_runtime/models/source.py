"""Classes in Python files of a model's folder. Importing runs them: callers have settled whether they may."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from slipway_runtime.artefact.description import PythonClass
from slipway_runtime.refusal import Refusal

_importing = threading.Lock()
_folders: list[Path] = []
"""Folders of models that have brought Python code, the latest first."""


def class_in(code: PythonClass, fits: Callable[[type[Any]], bool], expected: str) -> type[Any]:
    """The class ``code`` names, or the only class defined in its file that ``fits``. Raises Refusal."""
    module = _imported(code)
    if code.name:
        found = getattr(module, code.name, None)
        if not isinstance(found, type) or not fits(found):
            raise Refusal("LoadFailed", f"{code.file.name} has no class {code.name} of kind {expected}")
        return found
    own = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__ and fits(one)
    ]
    if len(own) == 1:
        return own[0]
    names = ", ".join(one.__name__ for one in own) or "none"
    raise Refusal("LoadFailed", f"{code.file.name} must have one class of kind {expected}, it has {names}; name it")


def _imported(code: PythonClass) -> ModuleType:
    with _importing:
        _make_way(code.file.parent.resolve())
        writing, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            return _executed(code)
        finally:
            sys.dont_write_bytecode = writing


def _make_way(folder: Path) -> None:
    """Let the folder's modules be found before those of other models, and none of an earlier load be taken for them.

    All models come behind everything installed: a model may bring modules, it may not replace those of the server.
    """
    for name, module in list(sys.modules.items()):
        # Not by getattr: some modules make their attributes up, and import something for that.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and any(Path(file).is_relative_to(one) for one in _folders):
            del sys.modules[name]
    _folders[:] = [folder, *(one for one in _folders if one != folder and one.is_dir())]
    own = {str(one) for one in _folders}
    sys.path[:] = [*(one for one in sys.path if one not in own), *map(str, _folders)]


def _executed(code: PythonClass) -> ModuleType:
    name = f"slipway_model_{code.file.stem}"
    spec = importlib.util.spec_from_file_location(name, code.file)
    if spec is None or spec.loader is None:
        raise Refusal("LoadFailed", f"{code.file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        text = f"importing {code.file.name}: {type(error).__name__}: {str(error)[:500]}"
        raise Refusal("LoadFailed", text) from error
    return module
