"""Arguments of KServe's Hugging Face server, which vLLM takes in part: what names the model says where it lies."""

from dataclasses import dataclass

from slipway.conversion.ledger import Ledger

__all__ = ["convert_arguments", "named_model"]

Path = tuple[str | int, ...]

_OWN = {
    "model_id": "is in spec.versions[].uri",
    "model_revision": "is in spec.versions[].uri",
    "model_dir": "Slipway says where the model is",
    "model": "Slipway says where the model is",
    "host": "Slipway says where the server listens",
    "port": "Slipway says where the server listens",
    "http_port": "Slipway says where the server listens",
    "backend": "vLLM is the only one here",
}
_LOST = {
    "model_name": "clients give the ModelDeployment's name as model",
    "served_model_name": "clients give the ModelDeployment's name as model",
    "task": "vLLM generates text; other tasks need a Python handler",
    "grpc_port": "vLLM has no gRPC",
}
_TEXT = ("text_generation", "generate", "text2text_generation")
_KEPT = "was meant for KServe's runtime; check that vllm takes it"


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str
    """Without dashes in front, with underscores."""
    value: str
    places: tuple[int, ...]
    """Its positions in the list."""


def named_model(ledger: Ledger, server: Path) -> str:
    """The ``hf://`` URI of the model that the arguments of a server name; empty without one."""
    given = {flag.name: flag.value for flag in _flags(ledger, server)}
    name, revision = given.get("model_id", ""), given.get("model_revision", "")
    if name.count("/") != 1:
        return ""
    return f"hf://{name}@{revision}" if revision else f"hf://{name}"


def convert_arguments(ledger: Ledger, server: Path) -> None:
    """Put into ``spec.runtime.args`` what vLLM may take, and account for the others."""
    flags = _flags(ledger, server)
    given = ledger.items(*server, "args")
    taken = {place for flag in flags if flag.name in _OWN or flag.name in _LOST for place in flag.places}
    kept = [word for place, word in enumerate(given) if place not in taken]
    if kept:
        ledger.place("spec.runtime.args", kept, *server, "args")
    for flag in flags:
        at = (*server, "args", flag.places[0])
        for place in flag.places:
            ledger.settle(*server, "args", place)
        if flag.name in _OWN or (flag.name == "task" and flag.value in _TEXT):
            ledger.unneeded(_OWN.get(flag.name, "is what vLLM does"), *at)
        elif flag.name in _LOST:
            ledger.dropped(_LOST[flag.name], *at)
        else:
            ledger.partly(_KEPT, *at)


def _flags(ledger: Ledger, server: Path) -> list[_Flag]:
    """The flags, in the form ``--name=value``, ``--name value`` or ``--name``; any other word is one without a name."""
    words = [str(word) for word in ledger.items(*server, "args")]
    flags: list[_Flag] = []
    place = 0
    while place < len(words):
        name, separator, value = words[place].partition("=")
        places: tuple[int, ...] = (place,)
        if name.startswith("--") and not separator and place + 1 < len(words) and not words[place + 1].startswith("-"):
            value, places = words[place + 1], (place, place + 1)
        flags.append(_Flag(name.removeprefix("--").replace("-", "_") if name.startswith("--") else "", value, places))
        place = places[-1] + 1
    return flags
