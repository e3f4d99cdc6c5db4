"""Which layout a model's folder has: Slipway's own, or one of TorchServe, MLflow or Triton (only read)."""

from __future__ import annotations

from pathlib import Path

from slipway_runtime.artefact import mlflow, torchserve, triton
from slipway_runtime.artefact.description import CONFIG_NAME, Description, FolderConfig, read_config
from slipway_runtime.artefact.format import PROGRAMS, WEIGHTS, ModelKind, identify, sniff
from slipway_runtime.refusal import Refusal

_FOREIGN = (
    (torchserve.fits, torchserve.describe),
    (mlflow.fits, mlflow.describe),
    (triton.fits, triton.describe),
)


def describe(folder: Path, version: str = "") -> Description:
    """What the folder holds and how to load it; ``version`` chooses where it holds several. Raises Refusal."""
    if not (folder / CONFIG_NAME).is_file():
        if version and triton.fits(folder):
            return triton.describe(folder, version)
        for fits, read in _FOREIGN:
            if fits(folder):
                return read(folder)
    return _own(folder, read_config(folder))


def _own(folder: Path, config: FolderConfig) -> Description:
    handler = config.handler
    if handler is not None:
        file = config.model or handler.file
        kind = ModelKind.HANDLER
    else:
        file = config.model or _model_file(folder, with_class=config.model_class is not None)
        kind = checked_kind(file, has_class=config.model_class is not None)
    return Description(
        kind=kind,
        file=file,
        root=folder,
        code=handler or config.model_class,
        arguments=config.arguments,
        inputs=config.inputs,
        outputs=config.outputs,
        max_rows=config.max_rows,
        row_wise=config.row_wise,
        instances=config.instances,
    )


def checked_kind(file: Path, *, has_class: bool) -> ModelKind:
    """The kind of a model file, given whether a model class for weights is there. Raises Refusal."""
    kind = sniff(file)
    if has_class and kind not in WEIGHTS:
        raise Refusal("NotAModel", f"a model class needs weights, {file.name} is {kind.value}")
    return kind if has_class else identify(file)


def _model_file(folder: Path, *, with_class: bool) -> Path:
    """The one model in a folder, known by its content."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    wanted = WEIGHTS if with_class else PROGRAMS
    models = [path for path in files if sniff(path) in wanted]
    preferred = [path for path in models if path.stem == "model"]
    chosen = preferred if len(preferred) == 1 else models
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(path.name for path in (models or files)[:10]) or "nothing"
    if models:
        raise Refusal("AmbiguousModel", f"the folder holds several models ({names}); name one of them model.pt")
    if with_class:
        raise Refusal("NotAModel", f"the folder holds no weights for its model class; found: {names}")
    if any(sniff(path) in WEIGHTS for path in files):
        raise Refusal(
            "NotAModel",
            f"the folder holds weights without a program ({names}); name the model's class in {CONFIG_NAME}",
        )
    raise Refusal("NotAModel", f"the folder holds no TorchScript, torch.export or ONNX program; found: {names}")
