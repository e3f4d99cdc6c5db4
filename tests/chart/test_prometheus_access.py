"""A Prometheus that asks who is there: a token, certificates of one's own, a tenant."""

from typing import Any

import pytest
import yaml
from slipway.metrics.credentials import Credentials

from tests.chart.rendering import CHART, helm
from tests.chart.test_page_and_notifications import pod, settings

URL = {"prometheusUrl": "https://thanos-querier.openshift-monitoring.svc:9091"}


def credentials(access: dict[str, Any]) -> Credentials:
    found: Credentials = settings({**URL, "prometheusAccess": access}).prometheus_credentials
    return found


def test_by_default_nothing_is_sent_and_nothing_is_mounted() -> None:
    assert settings(URL).prometheus_credentials == Credentials()
    assert "prometheus" not in [volume["name"] for volume in pod(URL)["volumes"]]


def test_the_token_of_the_service_account_is_there_already() -> None:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert credentials({"serviceAccountToken": True}) == Credentials(f"{account}/token")
    [container] = pod(URL)["containers"]
    assert account in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_a_token_an_authority_and_a_tenant_of_ones_own() -> None:
    access = {
        "tokenSecret": {"name": "reader", "key": "bearer"},
        "caConfigMap": {"name": "openshift-service-ca.crt", "key": "service-ca.crt"},
        "headers": {"X-Scope-OrgID": "ml", "X-Other": "a b"},
    }
    folder = "/etc/slipway/prometheus"
    headers = {"X-Scope-OrgID": "ml", "X-Other": "a b"}
    assert credentials(access) == Credentials(f"{folder}/token", f"{folder}/ca.crt", headers)
    spec = pod({**URL, "prometheusAccess": access})
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "prometheus"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "reader", "items": [{"key": "bearer", "path": "token"}]}},
        {"configMap": {"name": "openshift-service-ca.crt", "items": [{"key": "service-ca.crt", "path": "ca.crt"}]}},
    ]
    assert folder in [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]]


@pytest.mark.parametrize(
    ("access", "where"),
    [
        ({"tokenSecret": {"name": "x", "key": ""}}, "tokenSecret"),
        ({"headers": {"A": "1,2"}}, "headers"),
        ({"token": "plain"}, "token"),
    ],
)
def test_what_cannot_be_meant_is_refused(access: dict[str, Any], where: str) -> None:
    values = yaml.safe_dump({**URL, "prometheusAccess": access})
    answer = helm("template", "slipway", str(CHART), "-f", "-", stdin=values)
    assert answer.returncode != 0
    assert where in answer.stderr
