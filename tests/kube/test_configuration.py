"""Where the connection to a cluster comes from."""

import asyncio
from typing import Any

import pytest
from kubernetes.aio.config import ConfigException
from slipway.kube import transport


def test_a_pod_without_a_token_is_told_what_may_be_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_token(**_: Any) -> None:
        raise ConfigException("Service token file does not exist.")

    monkeypatch.setattr(transport, "load_incluster_config", without_token)
    with pytest.raises(ConfigException, match=r"automountServiceAccountToken false\?\): Service token file"):
        asyncio.run(transport.load_configuration({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}))
