"""The connection: whatever goes wrong is a snapshot that says so."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from slipway.api.samples import Quality
from slipway.metrics import PrometheusSource
from slipway.metrics.credentials import Credentials, headers_of
from slipway.metrics.session import BoundedSession

from tests.metrics.prometheus import FakePrometheus, serving
from tests.metrics.test_snapshot import NOW, REVISION, alive, read, requests


async def test_nobody_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        source = PrometheusSource(f"http://127.0.0.1:{reserved.getsockname()[1]}")
        snapshot = await source.snapshot(NOW)
        source.close()
    assert not snapshot.available
    assert snapshot.error.startswith("no connection to 127.0.0.1:"), "a cause that stays the same at every try"
    view = snapshot.view("nlp", "sentiment")
    assert (view.available, view.error) == (False, snapshot.error)
    assert view.of("any").arrivals.quality is Quality.MISSING


@pytest.mark.parametrize("status", [400, 422, 500, 503])
async def test_an_error_is_unavailable_and_not_retried(status):
    fake = FakePrometheus(status=status, body=b'{"status":"error","error":"query timed out"}')
    snapshot = await read(fake)
    assert not snapshot.available
    assert "query timed out" in snapshot.error
    assert len(fake.queries) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>not Prometheus</html>",
        b"{}",
        b"[]",
        b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[["x","y"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":[],"values":[[1,"2"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":null}}',
        b'{"status":"success","data":null}',
    ],
)
async def test_garbage_is_unavailable(body):
    assert not (await read(FakePrometheus(body=body))).available


async def test_empty_answers_are_available_and_know_nobody():
    snapshot = await read(FakePrometheus())
    assert snapshot.available
    assert snapshot.views == {}


async def test_a_slow_answer_is_given_up_and_not_piled_upon():
    fake = FakePrometheus([alive("p-0")], delay=30.0)
    with serving(fake) as url:
        source = PrometheusSource(url, timeout=0.2)
        first = await source.snapshot(NOW)
        assert not first.available
        assert "0.2s" in first.error or "timed out" in first.error
        fake.released.set()
        async with asyncio.timeout(60):
            while not (await source.snapshot(NOW)).available:
                pass
        source.close()


async def test_while_a_snapshot_is_read_a_second_one_is_refused():
    fake = FakePrometheus([alive("p-0")], delay=30.0)
    with serving(fake) as url:
        source = PrometheusSource(url)
        first = asyncio.create_task(source.snapshot(NOW))
        assert await asyncio.to_thread(fake.asked.wait, 60)
        second = await source.snapshot(NOW)
        fake.released.set()
        assert (await first).available
        source.close()
    assert not second.available
    assert "still being read" in second.error


async def test_a_token_is_read_anew_for_every_query(tmp_path):
    token, fake = tmp_path / "token", FakePrometheus()
    credentials = Credentials(str(token), headers=headers_of("X-Scope-OrgID=ml, X-Other=a"))
    with serving(fake) as url:
        source = PrometheusSource(url, credentials=credentials)
        missing = await source.snapshot(NOW)
        for text in ("first\n", "second\n"):
            token.write_text(text)
            assert (await source.snapshot(NOW)).available
            assert fake.headers["Authorization"] == f"Bearer {text.strip()}"
        source.want("nlp", "sentiment", ["custom"])
        fake.values["custom"] = ["1"]
        token.write_text("third")
        assert (await source.snapshot(NOW)).queries["custom"].value == 1.0
        source.close()
    assert (fake.headers["Authorization"], fake.headers["X-Scope-OrgID"]) == ("Bearer third", "ml")
    assert not missing.available
    assert missing.error.startswith("the token cannot be read")


@pytest.mark.parametrize("text", ["X-Scope-OrgID", "=ml", "A=1,B"])
def test_headers_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="is not NAME=VALUE"):
        headers_of(text)


def authority(folder):
    """A certificate of ours for 127.0.0.1, which is its own authority, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prometheus")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = builder.add_extension(addresses, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return folder / "ca.crt", folder / "key.pem"


async def test_an_authority_of_ones_own_is_trusted_and_nobody_elses(tmp_path):
    certificate, key = authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with serving(FakePrometheus(), tls) as url:
        trusting = PrometheusSource(url, credentials=Credentials(ca_file=str(certificate)))
        assert (await trusting.snapshot(NOW)).available
        trusting.close()
        wary = PrometheusSource(url)
        assert not (await wary.snapshot(NOW)).available
        wary.close()


@pytest.mark.parametrize(("interval", "window"), [(15, 60), (60, 150)])
async def test_the_meshs_rate_reaches_over_two_scrapes_however_far_apart_they_are(interval, window):
    times = [NOW - 5 - interval * n for n in range(4, -1, -1)]
    fake = FakePrometheus([alive("p-0", times=times), requests("p-0", 15.0, times=times)])
    with serving(fake) as url:
        source = PrometheusSource(url)
        for _ in range(2):
            assert (await source.snapshot(NOW)).available
        source.close()
    asked = [query for query in fake.queries if "rate(istio_requests_total" in query]
    assert [f"[{window}s]" in query for query in asked[1:]] == [True]


async def test_a_slash_at_the_end_of_the_url_is_fine():
    fake = FakePrometheus([alive("p-0"), requests("p-0", 15.0)])
    with serving(fake) as url:
        source = PrometheusSource(url + "/")
        assert (await source.snapshot(NOW)).available
        source.close()


STORE_AWAY = 'fetch series for {cluster="a"}: rpc error: code = Unavailable'


@pytest.mark.parametrize("query", ["slipway_requests_total", "slipway_queue_depth", "DCGM_FI_DEV_GPU_UTIL", "up{"])
async def test_an_answer_with_a_warning_may_lack_series(query):
    """As Thanos gives while it does not reach a store."""
    fake = FakePrometheus([alive("p-0"), requests("p-0", 30.0)], warnings={query: [STORE_AWAY, "another"]})
    metrics = (await read(fake)).view("nlp", "sentiment").of(REVISION)
    assert metrics.arrivals.ok
    assert metrics.caveat == STORE_AWAY


async def test_a_whole_answer_has_no_caveat():
    """Whatever labels look like; nor has the next one after a warning."""
    odd = requests("p-0", 30.0, warnings='"warnings":["x"]', isPartial='"isPartial":true')
    fake = FakePrometheus([alive("p-0"), odd], warnings={"slipway_requests_total": ["away"]})
    with serving(fake) as url:
        source = PrometheusSource(url)
        assert (await source.snapshot(NOW)).view("nlp", "sentiment").of(REVISION).caveat == "away"
        fake.warnings = {}
        assert not (await source.snapshot(NOW)).view("nlp", "sentiment").of(REVISION).caveat
        source.close()


@pytest.mark.parametrize(
    ("body", "caveat"),
    [
        (b'{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}', "the answer is partial"),
        (b'{"status":"success","isPartial":false,"data":{"resultType":"matrix","result":[]}}', ""),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":[]}', ""),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]},"warnings": ["a", "b"]}', "a"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":[[1]]}', "[1]"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]},"infos":["a gauge?"]}', ""),
        (b'{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["PromQL warning: le"]}', ""),
        (b'{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["PromQL info: x","a"]}', "a"),
        (b'{"warnings":["cut of', ""),
        (b"\xff\xfe", ""),
    ],
)
async def test_what_is_said_beside_the_data(body, caveat):
    with serving(FakePrometheus(body=body)) as url, BoundedSession(5.0) as session:
        session.get(url, params={"query": "up{"})
        assert session.caveat == caveat


async def test_a_native_histogram_by_one_of_our_names_is_passed_over():
    fake = FakePrometheus(
        body=b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"slipway_queue_depth"},'
        b'"histograms":[[1000,{"count":"1","sum":"2"}]]}]}}'
    )
    assert (await read(fake)).available
