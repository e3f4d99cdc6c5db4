"""A mesh on one machine: Istio's objects translated for a real Envoy."""

from e2e.sandbox.mesh.mesh import Mesh

__all__ = ["Mesh"]
