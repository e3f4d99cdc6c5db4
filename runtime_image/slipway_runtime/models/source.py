"""Classes in Python files of a model's folder. Importing runs them: callers have settled whether they may."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from slipway_runtime.artefact.description import PythonClass
from slipway_runtime.refusal import Refusal


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
    folder = str(code.file.parent.resolve())
    if folder not in sys.path:
        # Behind everything installed: a model may bring modules, it may not replace those of the server.
        sys.path.append(folder)
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
