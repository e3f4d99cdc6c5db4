import argparse

import pytest
from slipway.cli import run
from slipway.cli.run import add_arguments, settings_of
from slipway.engine.engine import Settings
from slipway.kube.kinds import APIS, ENVOY_FILTER, HTTP_ROUTE, VIRTUAL_SERVICE, WATCHED, watched
from slipway.kube.metadata import Key
from slipway.metrics.credentials import Credentials


def parsed(*arguments: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_arguments(parser, environment)
    return settings_of(parser.parse_args(arguments))


def test_the_defaults_are_those_of_the_settings():
    plain = Settings()
    found = parsed("--identity", plain.identity, "--no-lease")
    assert found == plain


def test_flags_win_over_the_environment():
    found = parsed("--http-port", "1", SLIPWAY_HTTP_PORT="2", SLIPWAY_WORKERS="7", SLIPWAY_TICK="0.5")
    assert (found.http_port, found.workers, found.tick) == (1, 7, 0.5)


def test_namespaces_are_split():
    assert parsed(SLIPWAY_NAMESPACES="a, b,").namespaces == ("a", "b")
    assert parsed().namespaces == ()


def test_the_lease():
    assert parsed("--lease-namespace", "x", "--lease-name", "y").lease == Key("x", "y")
    assert parsed("--no-lease").lease is None


def test_two_processes_on_one_host_are_not_the_same_leader(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "OWN_NAMESPACE", tmp_path / "namespace")
    assert parsed().identity != parsed().identity
    (tmp_path / "namespace").write_text("ns")
    assert parsed().identity == parsed().identity == Settings().identity


def test_the_operators_identity_in_the_mesh():
    assert parsed("--mesh-principal", "cluster.local/ns/a/sa/b").mesh_principal == "cluster.local/ns/a/sa/b"


def test_what_a_prometheus_asks_for():
    found = parsed(
        "--prometheus-token-file", "/t", "--prometheus-headers", "X-Scope-OrgID=ml", SLIPWAY_PROMETHEUS_CA_FILE="/ca"
    )
    assert found.prometheus_credentials == Credentials("/t", "/ca", {"X-Scope-OrgID": "ml"})
    with pytest.raises(SystemExit):
        parsed("--prometheus-headers", "nonsense")


def test_nonsense_in_the_environment_is_refused():
    with pytest.raises(SystemExit):
        parsed(SLIPWAY_WORKERS="many")


def test_kinds_that_are_not_allowed_are_not_asked_for():
    assert parsed().apis == ("istio", "istio-policies", "gateway-api", "hpa", "keda")
    assert parsed("--apis", "none").apis == ()
    assert parsed(SLIPWAY_APIS="gateway-api").apis == ("gateway-api",)
    assert HTTP_ROUTE in watched(["gateway-api"])
    assert not {VIRTUAL_SERVICE, ENVOY_FILTER} & set(watched(["gateway-api"]))
    assert set(watched(APIS)) == set(WATCHED)
    with pytest.raises(SystemExit):
        parsed("--apis", "linkerd")


def test_the_web_page_is_off_unless_it_has_a_port():
    assert parsed().web_port is None
    found = parsed("--web-host", "0.0.0.0", SLIPWAY_WEB_PORT="8086", SLIPWAY_WEB_NAMES="A.example, b.example")
    assert (found.web_port, found.web_host, found.web_names) == (8086, "0.0.0.0", ("a.example", "b.example"))


def test_receivers_are_read_and_wrong_ones_refused(capsys):
    text = '[{"name": "ops", "type": "slack", "urlEnv": "CHAT_URL"}]'
    (receiver,) = parsed("--cluster-name", "berlin", SLIPWAY_NOTIFICATIONS=text).receivers
    assert (receiver.name, receiver.url_env) == ("ops", "CHAT_URL")
    with pytest.raises(SystemExit):
        parsed("--notifications", '[{"name": "ops", "type": "slack", "url": "ftp://s3cret"}]')
    told = capsys.readouterr().err
    assert "the url of receiver ops is no http or https URL" in told
    assert "s3cret" not in told
