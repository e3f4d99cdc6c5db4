"""The sandbox's controllers: what kube-controller-manager and kube-scheduler do, for the kinds Slipway uses.

They talk to any Kubernetes API server, the sandbox's own or a kube-apiserver that runs without a controller manager.
"""

from .suite import Controllers

__all__ = ["Controllers"]
