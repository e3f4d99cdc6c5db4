"""How the tools that wait for an object read its status, each by its own rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import celpy
import yaml
from celpy.adapter import json_to_cel
from lupa.lua54 import LuaRuntime

DEPLOY = Path(__file__).parents[2] / "charts" / "deploy"

Object = Mapping[str, Any]


def condition(obj: Object, kind: str) -> str:
    """Status of a condition; empty where it is absent."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((str(item["status"]) for item in conditions if item["type"] == kind), "")


def kstatus(obj: Object) -> str:
    """As sigs.k8s.io/cli-utils/pkg/kstatus/status/generic.go computes it for a kind that it does not know."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    if status.get("observedGeneration", obj["metadata"]["generation"]) != obj["metadata"]["generation"]:
        return "InProgress"
    if condition(obj, "Reconciling") == "True":
        return "InProgress"
    if condition(obj, "Stalled") == "True":
        return "Failed"
    ready = condition(obj, "Ready")
    if ready in ("False", "Unknown"):
        return "InProgress"
    return "Current"


def kubectl_wait(obj: Object, kind: str = "Ready") -> bool:
    """Whether `kubectl wait --for=condition=KIND` ends; it compares a condition's observedGeneration."""
    for item in (obj.get("status") or {}).get("conditions") or ():
        if item["type"] == kind:
            current = item.get("observedGeneration", obj["metadata"]["generation"]) >= obj["metadata"]["generation"]
            return bool(current and item["status"] == "True")
    return False


def flux(obj: Object) -> str:
    """As Flux evaluates healthCheckExprs: generation first, then in progress, failed, current."""
    status = obj.get("status") or {}
    if status.get("observedGeneration", obj["metadata"]["generation"]) != obj["metadata"]["generation"]:
        return "InProgress"
    document = yaml.safe_load((DEPLOY / "flux" / "kustomization.yaml").read_text())
    [expressions] = document["spec"]["healthCheckExprs"]
    for name, word in (("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")):
        if _cel(expressions[name], obj):
            return word
    return "InProgress"


def _cel(expression: str, obj: Object) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    try:
        return bool(program.evaluate({name: json_to_cel(value) for name, value in obj.items()}))
    except celpy.CELEvalError:
        return False


def _to_lua(lua: LuaRuntime, value: Any) -> Any:
    if isinstance(value, Mapping):
        return lua.table_from({key: _to_lua(lua, item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return lua.table_from([_to_lua(lua, item) for item in value])
    return value


def _from_lua(value: Any) -> Any:
    if not hasattr(value, "items"):
        return value
    content = dict(value.items())
    if content and set(content) == set(range(1, len(content) + 1)):
        return [_from_lua(content[index]) for index in sorted(content)]
    return {key: _from_lua(item) for key, item in content.items()}


def run_lua(path: Path, obj: Object) -> Any:
    """Run one of Argo CD's Lua files on an object, with the few libraries that Argo CD opens."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    allowed = "io, package, debug, require, dofile, loadfile, python = nil; os = { time = os.time, date = os.date }"
    lua.execute(allowed)
    lua.globals()["obj"] = _to_lua(lua, obj)
    return _from_lua(lua.execute(path.read_text()))


def argocd(obj: Object) -> dict[str, str]:
    """Status and message of Argo CD's health check."""
    return dict(run_lua(DEPLOY / "argocd" / "health.lua", obj))
