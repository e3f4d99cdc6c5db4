"""Volumes without containers: real folders, and texts rewritten to point at them."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.sandbox.controllers.client import CLAIMS, ApiClient, Obj

from .environment import expand, field_value, read_data
from .errors import ContainerConfigError, MountError
from .identity import TOKEN_SECONDS, account_token


@dataclass(frozen=True)
class Mounts:
    """Where a container's mount paths really are."""

    places: tuple[tuple[str, Path], ...]

    def rewrite(self, text: str) -> str:
        """Replace every mount path that stands as a path of its own within a text, longest first.

        A file URI that leads to something on this machine and to nothing in the volume is left alone: pods of the
        sandbox share the machine's files, and a model may lie below a path such as /tmp that a pod has a volume at.
        """
        if not self.places:
            return text
        places = dict(self.places)
        paths = "|".join(re.escape(path) for path in sorted(places, key=len, reverse=True))
        pattern = rf"(?:^|(?<=[=:,;\"'\s\[(<>|&])|(?<=file://))({paths})(?=$|[/:,;\"'\s\])<>|&])"

        def place_of(match: re.Match[str]) -> str:
            place = places[match.group(1)]
            if text[: match.start()].endswith("file://"):
                rest = re.match(r"[^\s\"'<>|]*", text[match.end() :])
                inner = rest.group() if rest else ""
                if inner and Path(match.group(1) + inner).exists() and not Path(f"{place}{inner}").exists():
                    return match.group(1)
            return str(place)

        return re.sub(pattern, place_of, text)


class PodVolumes:
    """The volumes of one pod, below `folder`; claims live in `claims_folder` and outlive the pod.

    ConfigMaps and Secrets are written when the pod starts and followed while it runs, as a kubelet does.
    """

    def __init__(
        self, client: ApiClient, pod: Obj, folder: Path, claims_folder: Path, tokens_file: Path | None = None
    ) -> None:
        self._client = client
        self._pod = pod
        self._folder = folder
        self._claims_folder = claims_folder
        self._tokens_file = tokens_file
        self._places: dict[str, Path] = {}

    async def prepare(self, address: str, host: str) -> None:
        """Make all volumes ready; raises MountError with Kubernetes' wording while one cannot be."""
        for volume in self._pod["spec"].get("volumes") or ():
            name = volume["name"]
            try:
                self._places[name] = await self._prepare_one(volume, address, host)
            except ContainerConfigError as error:
                raise MountError(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error

    async def refresh(self, address: str, host: str) -> None:
        """Bring mounted ConfigMaps and Secrets up to date; one that has gone leaves its volume as it was."""
        for volume in self._pod["spec"].get("volumes") or ():
            if volume["name"] not in self._places or not {"configMap", "secret", "projected"} & set(volume):
                continue
            with contextlib.suppress(ContainerConfigError):
                await self._prepare_one(volume, address, host)
                await self._remove_dropped(volume)

    async def _remove_dropped(self, volume: Obj) -> None:
        """Files whose key was removed; a projected volume is left alone."""
        for kind in ("configMap", "secret"):
            if kind in volume:
                data = await self._data_of(kind, volume[kind])
                wanted = {path for path, _, _ in _items(volume[kind].get("items"), data)}
                for path in self._places[volume["name"]].iterdir():
                    if path.is_file() and path.name not in wanted:
                        path.unlink()

    async def _prepare_one(self, volume: Obj, address: str, host: str) -> Path:
        if "hostPath" in volume:
            return _host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"])
        folder = self._folder / str(volume["name"])
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            return folder
        for kind in ("configMap", "secret", "downwardAPI", "projected"):
            if kind in volume:
                sources: list[Obj] = [{kind: volume[kind]}]
                if kind == "projected":
                    sources = volume[kind].get("sources") or []
                mode = volume[kind].get("defaultMode") or 0o644
                for source in sources:
                    await self._write_source(folder, source, mode, address, host)
                return folder
        raise MountError(f"volume {volume['name']}: this kind of volume is not simulated by the sandbox")

    async def _claim(self, name: str) -> Path:
        namespace = self._pod["metadata"]["namespace"]
        if await self._client.find(CLAIMS, namespace, name) is None:
            raise MountError(f'persistentvolumeclaim "{name}" not found')
        folder = self._claims_folder / str(namespace) / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def _write_source(self, folder: Path, source: Obj, mode: int, address: str, host: str) -> None:
        for kind in ("configMap", "secret"):
            if kind in source:
                data = await self._data_of(kind, source[kind])
                for path, raw, own_mode in _items(source[kind].get("items"), data):
                    _write(folder, path, raw, own_mode or mode)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            text = field_value(self._pod, item["fieldRef"]["fieldPath"], address, host) if "fieldRef" in item else ""
            _write(folder, item["path"], text.encode(), item.get("mode") or mode)
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            token = await account_token(
                self._client,
                self._pod,
                self._tokens_file,
                seconds=wanted.get("expirationSeconds") or TOKEN_SECONDS,
                audience=wanted.get("audience") or "",
            )
            if token:
                _write(folder, source["serviceAccountToken"]["path"], token.encode(), 0o600)

    async def _data_of(self, kind: str, source: Obj) -> dict[str, bytes]:
        name = source.get("secretName") or source.get("name") or ""
        optional = bool(source.get("optional"))
        data = await read_data(self._client, kind, self._pod["metadata"]["namespace"], name, optional)
        for item in source.get("items") or ():
            if item["key"] not in data and not optional:
                raise ContainerConfigError(f"references non-existent {kind.lower()} key: {item['key']}")
        return data

    def mounts_of(self, container: Obj, root: Path, values: dict[str, str]) -> Mounts:
        """The container's mounts; `root` gets a link at each mount path. Raises ContainerConfigError."""
        places = []
        for mount in container.get("volumeMounts") or ():
            place = self._places.get(mount["name"])
            if place is None:
                raise ContainerConfigError(f'volume "{mount["name"]}" is not defined')
            inner = expand(mount["subPathExpr"], values) if mount.get("subPathExpr") else mount.get("subPath") or ""
            if inner:
                place = _within(place, inner)
            path = mount["mountPath"].rstrip("/") or "/"
            places.append((path, place))
            _link(root / path.lstrip("/"), place)
        return Mounts(tuple(places))

    def remove(self) -> None:
        """Remove the pod's own volumes."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _host_path(source: Obj) -> Path:
    path = Path(source["path"])
    kind = source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(exist_ok=True)
    elif kind == "Directory" and not path.is_dir():
        raise MountError(f"hostPath type check failed: {path} is not a directory")
    elif kind == "File" and not path.is_file():
        raise MountError(f"hostPath type check failed: {path} is not a file")
    return path


def _items(items: list[Obj] | None, data: dict[str, bytes]) -> Iterable[tuple[str, bytes, int | None]]:
    if not items:
        return [(key, raw, None) for key, raw in data.items()]
    return [(item["path"], data[item["key"]], item.get("mode")) for item in items if item["key"] in data]


def _within(folder: Path, inner: str) -> Path:
    path = (folder / inner).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ContainerConfigError(f"subPath leaves its volume: {inner}")
    if not path.exists():
        path.mkdir(parents=True)
    return path


def _write(folder: Path, inner: str, raw: bytes, mode: int) -> None:
    path = folder / inner
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ContainerConfigError(f"a path leaves its volume: {inner}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(raw)
    temporary.chmod(mode)
    temporary.replace(path)


def _link(link: Path, place: Path) -> None:
    # A mount within another mount cannot be linked without writing into the outer volume; rewriting still finds it.
    with contextlib.suppress(FileExistsError, NotADirectoryError):
        for parent in link.parents:
            if parent.is_symlink():
                return
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
