"""The subcommands ``export`` and ``verify``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.export.exporting import Target, export
from slipway_runtime.export.verification import Verification, verify
from slipway_runtime.models.difference import Tolerance
from slipway_runtime.refusal import ExitCode
from slipway_runtime.settings import Device, ModelSettings, Precision

DIFFERENT = 1
"""Exit code when the answers lie further apart than the tolerance."""


def run_export(given: argparse.Namespace) -> int:
    """Write the program, then compare it with its source. Raises Refusal."""
    source = _settings(given.source, given, Precision.FP32)
    export(source, Target(given.to), given.output, given.max_rows)
    written = _settings(str(given.output), given, Precision.FP32)
    sys.stdout.write(f"wrote {given.output}, sha256 {digest_of(given.output)}\n")
    return _reported(verify(source, written, _tolerance(given)))


def run_verify(given: argparse.Namespace) -> int:
    """Compare two models. Raises Refusal."""
    first = _settings(given.first, given, Precision.FP32)
    second = _settings(given.second, given, Precision(given.precision))
    return _reported(verify(first, second, _tolerance(given), given.goldens, given.write_goldens))


def _reported(found: Verification) -> int:
    sys.stdout.write(found.text())
    return ExitCode.OK if found.within else DIFFERENT


def _tolerance(given: argparse.Namespace) -> Tolerance:
    return Tolerance(given.rtol, given.atol)


def _settings(place: str, given: argparse.Namespace, precision: Precision) -> ModelSettings:
    """A URI, or a path on this machine."""
    uri = place if ":/" in place else str(Path(place).resolve())
    return ModelSettings(
        "model",
        "1",
        "",
        uri,
        device=Device.CPU,
        precision=precision,
        inputs_json=given.inputs,
        outputs_json=given.outputs,
    )
