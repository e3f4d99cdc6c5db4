"""A mesh on one machine: Istio's objects translated for a real Envoy."""

from pathlib import Path

from e2e.sandbox.mesh.mesh import Mesh

CRD_FOLDER = Path(__file__).parent / "crds"
"""Istio's kinds as CustomResourceDefinitions, one YAML file each, to be applied before a mesh is started."""

__all__ = ["CRD_FOLDER", "Mesh"]
