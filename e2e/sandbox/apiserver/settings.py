"""ConfigMaps, Secrets, Namespaces, Nodes, Leases, Events, quotas, claims and accounts: the rules of each kind."""

from __future__ import annotations

import base64
import binascii
import re

from .failures import FORBIDDEN, INVALID, REQUIRED, TOO_LONG, Cause
from .kinds import Rules
from .schema import JsonDict
from .values import shown

_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_MOST_BYTES = 1024 * 1024
_IMMUTABLE = "Forbidden: field is immutable when `immutable` is set"


def _check_keys(data: JsonDict, path: str) -> list[Cause]:
    words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return [
        Cause(INVALID, f"{path}[{key}]", f"Invalid value: {shown(key)}: {words}")
        for key in data
        if not _KEY.match(key) or key in (".", "..")
    ]


def _check_config_map(config: JsonDict) -> list[Cause]:
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    causes = _check_keys(data, "data") + _check_keys(binary, "binaryData")
    for key in data.keys() & binary.keys():
        causes.append(
            Cause(INVALID, f"data[{key}]", f"Invalid value: {shown(key)}: duplicate of key present in binaryData")
        )
    size = sum(len(key) + len(value) for part in (data, binary) for key, value in part.items())
    if size > _MOST_BYTES:
        causes.append(Cause(TOO_LONG, "", f"Too long: may not be more than {_MOST_BYTES} bytes"))
    return causes


def _check_immutable(keys: tuple[str, ...], new: JsonDict, old: JsonDict) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = [Cause(FORBIDDEN, key, _IMMUTABLE) for key in keys if new.get(key) != old.get(key)]
    if not new.get("immutable"):
        causes.insert(0, Cause(FORBIDDEN, "immutable", _IMMUTABLE))
    return causes


def _default_secret(secret: JsonDict) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.setdefault("data", {})
        for key, value in plain.items():
            data[key] = base64.b64encode(value.encode()).decode()


def _check_secret(secret: JsonDict) -> list[Cause]:
    data = secret.get("data") or {}
    causes = _check_keys(data, "data")
    for key, value in data.items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            causes.append(Cause(INVALID, f"data[{key}]", "Invalid value: illegal base64 data"))
    required = {"kubernetes.io/tls": ("tls.crt", "tls.key"), "kubernetes.io/dockerconfigjson": (".dockerconfigjson",)}
    for key in required.get(secret.get("type", ""), ()):
        if key not in data:
            causes.append(Cause(REQUIRED, f"data[{key}]", "Required value"))
    return causes


def _check_secret_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    causes = _check_immutable(("data",), new, old)
    if new.get("type") != old.get("type"):
        causes.append(Cause(INVALID, "type", f"Invalid value: {shown(new.get('type'))}: field is immutable"))
    return causes


def _default_namespace(namespace: JsonDict) -> None:
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _prepare_namespace(namespace: JsonDict) -> None:
    spec = namespace.setdefault("spec", {})
    spec["finalizers"] = sorted({*(spec.get("finalizers") or ()), "kubernetes"})
    namespace["status"] = {"phase": "Active"}


def _keep_namespace_finalizers(new: JsonDict, old: JsonDict) -> None:
    finalizers = (old.get("spec") or {}).get("finalizers")
    new["spec"] = {"finalizers": finalizers} if finalizers else {}


def _check_lease(lease: JsonDict) -> list[Cause]:
    causes, spec = [], lease.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        causes.append(Cause(INVALID, "spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        words = f"Invalid value: {spec['leaseTransitions']}: must be greater than or equal to 0"
        causes.append(Cause(INVALID, "spec.leaseTransitions", words))
    return causes


def _check_event(event: JsonDict) -> list[Cause]:
    namespace = event.get("involvedObject", {}).get("namespace", "")
    own = event["metadata"].get("namespace", "")
    if namespace != own and not (namespace == "" and own == "default"):
        return [
            Cause(
                INVALID,
                "involvedObject.namespace",
                f"Invalid value: {shown(namespace)}: does not match event.namespace",
            )
        ]
    return []


def _default_claim(claim: JsonDict) -> None:
    claim["spec"].setdefault("volumeMode", "Filesystem")


def _prepare_claim(claim: JsonDict) -> None:
    claim["status"] = {"phase": "Pending"}


def _check_new_event(event: JsonDict) -> list[Cause]:
    causes = []
    for key in ("eventTime", "reportingController", "reportingInstance", "action", "reason"):
        if not event.get(key):
            causes.append(Cause(REQUIRED, key, "Required value"))
    if event.get("type") not in ("Normal", "Warning"):
        causes.append(
            Cause(INVALID, "type", f"Invalid value: {shown(event.get('type', ''))}: must be Normal or Warning")
        )
    return causes


def _check_claim(claim: JsonDict) -> list[Cause]:
    causes, spec = [], claim["spec"]
    if not spec.get("accessModes"):
        causes.append(Cause(REQUIRED, "spec.accessModes", "Required value: at least 1 access mode is required"))
    if "storage" not in (spec.get("resources", {}).get("requests") or {}):
        causes.append(Cause(REQUIRED, "spec.resources[storage]", "Required value"))
    return causes


CONFIG_MAP = Rules(
    check=_check_config_map, check_update=lambda new, old: _check_immutable(("data", "binaryData"), new, old)
)
SECRET = Rules(defaults=_default_secret, check=_check_secret, check_update=_check_secret_update, fields=("type",))
NAMESPACE = Rules(
    defaults=_default_namespace,
    prepare=_prepare_namespace,
    prepare_update=_keep_namespace_finalizers,
    name_pattern="label",
    fields=("status.phase",),
)
NODE = Rules(fields=("spec.unschedulable",))
LEASE = Rules(check=_check_lease, unconditional=False, create_on_update=True)
EVENT = Rules(
    check=_check_event,
    create_on_update=True,
    fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
)
NEW_EVENT = Rules(check=_check_new_event)
CLAIM = Rules(defaults=_default_claim, prepare=_prepare_claim, check=_check_claim, returns_deleted=True)
ACCOUNT = Rules(returns_deleted=True)
QUOTA = Rules(returns_deleted=True)
