"""The environment and the command line of a container."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping

from e2e.sandbox.controllers.client import CONFIG_MAPS, SECRETS, ApiClient, Obj
from e2e.sandbox.controllers.quantities import parse_quantity

from .errors import ContainerConfigError
from .images import Image

_REFERENCE = re.compile(r"\$(\$)?\(([-._a-zA-Z0-9]+)\)")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)`; `$$(NAME)` stands for a literal `$(NAME)` and unknown names stay as they are."""

    def replace(match: re.Match[str]) -> str:
        if match.group(1):
            return match.group(0)[1:]
        return values.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replace, text)


def command_line(
    container: Obj, image: Image, values: Mapping[str, str], rewrite: Callable[[str], str] = str
) -> list[str]:
    """`command` replaces the entry point and the image's arguments, `args` replaces the arguments.

    Words of the pod are rewritten, since they speak of paths in the container; those of the image are this machine's.
    """
    command = [rewrite(expand(word, values)) for word in container.get("command") or ()]
    args = [rewrite(expand(word, values)) for word in container.get("args") or ()]
    if command:
        return [*command, *args]
    return [*image.entrypoint, *(args or image.args)]


async def container_environment(client: ApiClient, pod: Obj, container: Obj, address: str, host: str) -> dict[str, str]:
    """The variables a container's definition asks for; raises ContainerConfigError when a source is missing."""
    values: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom") or ():
        for kind in ("configMapRef", "secretRef"):
            if source.get(kind):
                reference = source[kind]
                data = await read_data(client, kind, namespace, reference["name"], bool(reference.get("optional")))
                prefix = source.get("prefix", "")
                values.update({prefix + name: raw.decode("utf-8", "replace") for name, raw in data.items()})
    for entry in container.get("env") or ():
        if entry.get("valueFrom"):
            value = await _value_from(client, pod, container, entry["valueFrom"], address, host)
            if value is not None:
                values[entry["name"]] = value
        else:
            values[entry["name"]] = expand(entry.get("value") or "", values)
    return values


async def _value_from(client: ApiClient, pod: Obj, container: Obj, source: Obj, address: str, host: str) -> str | None:
    if source.get("fieldRef"):
        return field_value(pod, source["fieldRef"]["fieldPath"], address, host)
    if source.get("resourceFieldRef"):
        return resource_value(container, source["resourceFieldRef"])
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if source.get(kind):
            reference = source[kind]
            optional = bool(reference.get("optional"))
            data = await read_data(client, kind, pod["metadata"]["namespace"], reference["name"], optional)
            if reference["key"] in data:
                return data[reference["key"]].decode("utf-8", "replace")
            if optional:
                return None
            word = "ConfigMap" if kind == "configMapKeyRef" else "Secret"
            where = f"{pod['metadata']['namespace']}/{reference['name']}"
            raise ContainerConfigError(f"couldn't find key {reference['key']} in {word} {where}")
    raise ContainerConfigError(f"unsupported source of a variable: {sorted(source)}")


async def read_data(client: ApiClient, kind: str, namespace: str, name: str, optional: bool) -> dict[str, bytes]:
    """The content of a ConfigMap or Secret; raises ContainerConfigError when it is missing and not optional."""
    resource = CONFIG_MAPS if kind.startswith("configMap") else SECRETS
    found = await client.find(resource, namespace, name)
    if found is None:
        if optional:
            return {}
        raise ContainerConfigError(f'{resource.kind.lower()} "{name}" not found')
    if resource is SECRETS:
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    plain = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    return {**plain, **binary}


def field_value(pod: Obj, path: str, address: str, host: str) -> str:
    """A field of the downward API; raises ContainerConfigError for one it does not have."""
    meta = pod["metadata"]
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if keyed:
        return str((meta.get(keyed.group(1)) or {}).get(keyed.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = sorted((meta.get(path.partition(".")[2]) or {}).items())
        return "".join(f'{name}="{value}"\n' for name, value in entries)
    simple = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": host,
        "status.hostIPs": host,
    }
    if path not in simple:
        raise ContainerConfigError(f"unsupported field path: {path}")
    return str(simple[path])


def resource_value(container: Obj, reference: Obj) -> str:
    """A request or limit of the container in units of the divisor, rounded up."""
    side, _, name = reference["resource"].partition(".")
    amount = ((container.get("resources") or {}).get(side) or {}).get(name, "0")
    divisor = parse_quantity(reference.get("divisor") or "1") or 1
    exact = parse_quantity(amount) / divisor
    return str(math.ceil(exact))
