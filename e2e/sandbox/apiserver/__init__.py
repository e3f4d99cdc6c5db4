"""A Kubernetes API server in Python for the sandbox: the kinds Slipway uses, answered as kube-apiserver v1.36 does.

It is a simulation: objects live in memory, there is no etcd, no admission webhooks and no aggregation.
"""

from .access import User
from .failures import ApiError
from .server import ApiServer

__all__ = ["ApiError", "ApiServer", "User"]
