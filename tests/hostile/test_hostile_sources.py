"""Storage that is out for more than it is asked for: addresses, redirects, listings and bodies without end."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.fetch import addresses, listing
from slipway_runtime.fetch import client as clients
from slipway_runtime.fetch.addresses import AddressRefused, judge
from slipway_runtime.fetch.client import MAX_DOCUMENT_BYTES, Client, origin
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import RemoteFile
from slipway_runtime.fetch.store import Store
from slipway_runtime.fetch.transfer import FetchLimits, Transfer, plain
from slipway_runtime.refusal import Refusal

from tests.hostile.test_hostile_prometheus import ENDLESS, HEAD, Pretender, whole
from tests.probe.servers import raw_server
from tests.runtime.remote import Answer, Asked, RemoteServer, remote_server

LIMITS = FetchLimits(max_bytes=3_000_000, tries=2)


@pytest.fixture
def remote() -> Iterator[RemoteServer]:
    with remote_server() as server:
        yield server


@pytest.fixture
def elsewhere() -> Iterator[RemoteServer]:
    """What must not be reached."""
    with remote_server() as server:
        server.pages["/secret"] = b"secret"
        yield server


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "HF_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)


def store_of(folder: Path, **secret: str) -> Store:
    (folder / "secret").mkdir(exist_ok=True)
    for name, value in secret.items():
        (folder / "secret" / name).write_text(value)
    return Store(folder / "store", Credentials(folder / "secret"), LIMITS, pause=lambda _: None)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.1.1", "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "::ffff:100.100.100.200",
        "224.0.0.1", "ff02::1", "0.0.0.0", "::", "::ffff:0.0.0.0",
    ],
)  # fmt: skip
def test_some_addresses_are_never_reached(address: str) -> None:
    for named in (True, False):
        with pytest.raises(AddressRefused, match="link-local or multicast"):
            judge("storage.example", address, named=named)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "192.0.2.1",
        "240.0.0.1", "255.255.255.255", "::1", "fc00::1", "fd12::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::10.0.0.1", "2002:7f00:1::", "2001:db8::1",
    ],
)  # fmt: skip
def test_private_addresses_are_reached_only_where_a_user_named_the_host(address: str) -> None:
    judge("storage.example", address, named=True)
    with pytest.raises(AddressRefused, match="has a private address"):
        judge("storage.example", address, named=False)


def test_public_addresses_are_reached() -> None:
    for address in ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34"):
        judge("storage.example", address, named=False)


FORMS = [
    "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "localhost", "LOCALHOST",
    "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "0", "0.0.0.0", "user@localhost",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_no_way_to_write_an_address_leads_around_the_rule(
    tmp_path: Path, remote: RemoteServer, elsewhere: RemoteServer, form: str
) -> None:
    port = elsewhere.host.rpartition(":")[2]
    remote.pages["/m"] = Answer(status=302, headers={"Location": f"http://{form}:{port}/secret"})
    with pytest.raises(Refusal) as caught:
        bring(remote, tmp_path / "m")
    assert caught.value.reason in ("FetchRefused", "FetchFailed")
    assert elsewhere.asked == [] and not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://a/m", "data:,x", "gopher://a/", "//169.254.169.254/", "http://[::", "//[", "http://"],
)
def test_redirects_elsewhere_are_refused(tmp_path: Path, remote: RemoteServer, target: str) -> None:
    remote.pages["/m"] = Answer(status=307, headers={"Location": target})
    with pytest.raises(Refusal) as caught:
        bring(remote, tmp_path / "m")
    assert caught.value.reason in ("FetchRefused", "SchemeNotSupported")


def bring(remote: RemoteServer, target: Path) -> None:
    client = Client(connect_seconds=5)
    client.trust(remote.url)
    Transfer(client, LIMITS, pause=lambda _: None).bring(RemoteFile("m", plain(f"{remote.url}/m")), target)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Names that resolve to one list of addresses after the other; gives what is connected to."""
    reached: list[str] = []
    left = list(answers)

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    def connect(connection: Any, opened: socket.socket, address: Any) -> socket.socket:
        reached.append(address[0])
        opened.close()
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(addresses, "_opened", connect)
    return reached


@pytest.mark.parametrize("addresses_", [["169.254.169.254"], ["10.0.0.1"], ["127.0.0.1"], ["10.0.0.1", "169.254.1.1"]])
def test_names_of_such_addresses_are_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, addresses_: list[str]
) -> None:
    reached = resolving(monkeypatch, addresses_)
    with pytest.raises(Refusal, match="FetchRefused"), Client().get("http://innocent.example/m"):
        pass
    assert reached == []


def test_a_name_that_changes_its_address_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up once for each connection, and the address that was judged is the one connected to."""
    reached = resolving(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    for _ in range(3):
        with pytest.raises(Exception) as caught, Client().get("http://rebinding.example/m"):
            pass
        assert "cannot be reached" in str(caught.value) or "private address" in str(caught.value)
    assert reached == ["93.184.216.34"]


def test_of_several_addresses_those_allowed_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = resolving(monkeypatch, ["169.254.169.254", "10.0.0.1", "93.184.216.34"])
    client = Client()
    client.trust("http://storage.example")
    for host, wanted in (("storage.example", ["10.0.0.1", "93.184.216.34"]), ("other.example", ["93.184.216.34"])):
        with pytest.raises(Refusal, match="FetchRefused"), client.get(f"http://{host}/m"):
            pass
        assert reached == wanted
        reached.clear()


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("http://evil.example\\@storage.example/", "http://storage.example/"),
        ("http://storage.example@evil.example/", "http://storage.example/"),
        ("http://storage.example.evil.example/", "http://storage.example/"),
        ("http://storage.example:81/", "http://storage.example/"),
        ("https://storage.example/", "http://storage.example/"),
    ],
)
def test_an_origin_is_that_of_the_connection(other: str, same: str) -> None:
    assert origin(other) != origin(same)


def test_credentials_are_not_talked_out_of_it(remote: RemoteServer, elsewhere: RemoteServer) -> None:
    """A backslash ends the host for the one that connects, and not for every parser."""
    remote.pages["/m"] = Answer(status=302, headers={"Location": f"http://{elsewhere.host}\\@{remote.host}/m"})
    client = Client()
    client.trust(remote.url)
    with client.get(f"{remote.url}/m", {"Authorization": "Bearer secret"}):
        pass
    assert len(elsewhere.asked) == 1
    assert all("authorization" not in asked.headers for asked in elsewhere.asked)


BODY = b"model" * 1000


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HEAD + b"Content-Length: 9000\r\n\r\n" + BODY, "FetchFailed"),
        (HEAD + b"Content-Length: 10\r\n\r\n" + BODY, "DigestMismatch"),
        (HEAD + b"Content-Length: -1\r\n\r\n" + BODY[:-1], "DigestMismatch"),
        (HEAD + b"Content-Length: \xb2\r\n\r\n" + BODY[:-1], "DigestMismatch"),
        (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY[:-1], "DigestMismatch"),
        (HEAD + b"Content-Length: 999999999999\r\n\r\n" + BODY, "ArtefactTooLarge"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY, "FetchFailed"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nmodel\r\n", "FetchFailed"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(20_000_000)), "ArtefactTooLarge"),
        (b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 7-9/10\r\nContent-Length: 3\r\n\r\nabc", "FetchFailed"),
        (b"HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n", "FetchFailed"),
        (b"HTTP/1.1 503 No\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n", "FetchFailed"),
        (b"HTTP/1.1 503 No\r\nRetry-After: " + b"9" * 5000 + b"\r\nContent-Length: 0\r\n\r\n", "FetchFailed"),
        (HEAD + b"X: y\r\n" * 500 + b"\r\n" + BODY, "FetchFailed"),
        (b"\x00 no HTTP\r\n\r\n", "FetchFailed"),
        (b"", "FetchFailed"),
    ],
)
async def test_answers_that_lie_bring_no_model(tmp_path: Path, answer: bytes, reason: str) -> None:
    (tmp_path / "body").write_bytes(BODY)
    refusal = await fetched(tmp_path / "m", Pretender(answer), digest_of(tmp_path / "body"))
    assert refusal.reason == reason
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"])
async def test_a_body_without_end_is_given_up_at_the_limit(tmp_path: Path, head: bytes) -> None:
    block = b"%x\r\n%s\r\n" % (len(ENDLESS), ENDLESS) if head else ENDLESS
    pretender = Pretender(HEAD + head + b"\r\n", block)
    assert (await fetched(tmp_path / "m", pretender)).reason == "ArtefactTooLarge"
    assert pretender.sent < LIMITS.max_bytes + 50_000_000


async def fetched(target: Path, pretender: Pretender, sha256: str = "") -> Refusal:
    """The refusal that a fetch from such a server ends in."""
    async with raw_server(pretender.talk) as port:
        url = f"http://127.0.0.1:{port}"
        client = Client(read_seconds=30)
        client.trust(url)
        transfer = Transfer(client, LIMITS, pause=lambda _: None)
        with pytest.raises(Refusal) as caught:
            await asyncio.to_thread(transfer.bring, RemoteFile("m", plain(f"{url}/m"), sha256=sha256), target)
        pretender.over.set()
    return caught.value


@pytest.mark.parametrize(
    "pretender",
    [
        Pretender(HEAD + b"\r\n", ENDLESS),
        Pretender(whole(gzip.compress(b" " * (MAX_DOCUMENT_BYTES + 1)), b"Content-Encoding: gzip")),
        Pretender(whole(b"[" * 5_000_000)),
        Pretender(whole(b"9" * 5000)),
        Pretender(whole(b"\xff")),
    ],
    ids=["endless", "bomb", "deep", "a long number", "no text"],
)
async def test_documents_have_a_bound_and_a_form(pretender: Pretender) -> None:
    async with raw_server(pretender.talk) as port:
        client = Client(read_seconds=30)
        client.trust(f"http://127.0.0.1:{port}")
        tracemalloc.start()
        with pytest.raises(Refusal, match=r"longer than|did not answer with JSON"):
            await asyncio.to_thread(client.document, f"http://127.0.0.1:{port}/")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        pretender.over.set()
    assert peak < 8 * MAX_DOCUMENT_BYTES


def endless_bucket(asked: Asked) -> Answer:
    text = "<ListBucketResult><Name>models</Name><IsTruncated>true</IsTruncated>"
    text += "<NextContinuationToken>x</NextContinuationToken></ListBucketResult>"
    return Answer(text.encode(), headers={"Content-Type": "application/xml"})


def s3(remote: RemoteServer) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": remote.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu"}


def test_listings_without_end_are_given_up(
    tmp_path: Path, remote: RemoteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_PAGES", 5)
    monkeypatch.setattr(clients, "MAX_PAGES", 5)
    more = Answer(b"[]", headers={"Link": f'<{remote.url}/api/models/o/n/tree/main?more>; rel="next"'})
    remote.pages["/api/models/o/n/tree/main"] = more
    remote.json("/storage/v1/b/models/o", {"nextPageToken": "x"})
    remote.pages["/models"] = remote.pages["/models/"] = endless_bucket
    secret = {"HF_ENDPOINT": remote.url, "STORAGE_EMULATOR_HOST": remote.url, **s3(remote)}
    for uri in ("hf://o/n", "gs://models/v1", "s3://models/v1"):
        remote.asked.clear()
        with pytest.raises(Refusal, match=r"more than 5 (pages|requests)"):
            store_of(tmp_path, **secret).fetch(uri, "")
        assert len(remote.asked) == 5


def test_listings_of_too_many_are_given_up(
    tmp_path: Path, remote: RemoteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_LISTED", 5)
    remote.json("/api/models/o/n/tree/main", [{"type": "file", "path": str(number)} for number in range(6)])
    with pytest.raises(Refusal, match="more than 5 entries"):
        store_of(tmp_path, HF_ENDPOINT=remote.url).fetch("hf://o/n", "")


async def test_a_listing_of_gigabytes_is_given_up(tmp_path: Path) -> None:
    """By a library that would read it all."""
    pretender = Pretender(HEAD + b"Content-Type: application/xml\r\n\r\n", ENDLESS)
    async with raw_server(pretender.talk) as port:
        secret = {**s3_settings(port)}
        with pytest.raises(Refusal, match="longer than"):
            await asyncio.to_thread(store_of(tmp_path, **secret).fetch, "s3://models/v1", "")
        pretender.over.set()
    assert pretender.sent < MAX_DOCUMENT_BYTES + 50_000_000


def s3_settings(port: int) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu"}
    return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", **keys}


def test_a_listing_goes_on_at_its_own_host(tmp_path: Path, remote: RemoteServer, elsewhere: RemoteServer) -> None:
    remote.pages["/api/models/o/n/tree/main"] = Answer(b"[]", headers={"Link": f'<{elsewhere.url}/x>; rel="next"'})
    with pytest.raises(Refusal, match="goes on at another host"):
        store_of(tmp_path, HF_ENDPOINT=remote.url, HF_TOKEN="t0ken").fetch("hf://o/n", "")
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "place",
    [
        "https://localhost:{port}/secret",
        "oci://localhost:{port}/a/b:1",
        "file:///etc/passwd",
        "/etc/passwd",
        "models:/m/2",
    ],
)
def test_what_a_registry_names_is_not_what_a_user_named(
    tmp_path: Path, remote: RemoteServer, elsewhere: RemoteServer, place: str
) -> None:
    """No private address, no file of the pod, and nothing of the Secret."""
    named = place.format(port=elsewhere.host.rpartition(":")[2])
    remote.json("/api/2.0/mlflow/model-versions/get-download-uri", {"artifact_uri": named})
    secret = {"MLFLOW_TRACKING_URI": remote.url, "token": "t0ken", "OCI_PLAIN_HTTP": "true"}
    with pytest.raises(Refusal, match=r"FetchRefused|SchemeNotSupported"):
        store_of(tmp_path, **secret).fetch("models:/m/1", "")
    assert elsewhere.asked == []


def test_a_secret_goes_to_no_host_that_a_registry_named(
    tmp_path: Path, remote: RemoteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.json("/api/2.0/mlflow/model-versions/get-download-uri", {"artifact_uri": "https://public.example/m"})
    sent: list[Any] = []
    monkeypatch.setattr(Transfer, "bring", lambda self, file, target: sent.append(file.locate()))
    secret = {"MLFLOW_TRACKING_URI": remote.url, "token": "t0ken", "username": "u", "password": "p"}
    with pytest.raises(FileNotFoundError):
        store_of(tmp_path, **secret).fetch("models:/m/1", "")
    assert [(request.url, dict(request.headers)) for request in sent] == [("https://public.example/m", {})]


def test_tokens_are_not_fetched_from_private_addresses(
    tmp_path: Path, remote: RemoteServer, elsewhere: RemoteServer
) -> None:
    realm = f"http://localhost:{elsewhere.host.rpartition(':')[2]}/token"
    remote.pages["/v2/a/b/manifests/1"] = Answer(status=401, headers={"WWW-Authenticate": f'Bearer realm="{realm}"'})
    with pytest.raises(Refusal, match="private address"):
        store_of(tmp_path, OCI_PLAIN_HTTP="true").fetch(f"oci://{remote.host}/a/b:1", "")
    assert elsewhere.asked == []


KEYS = st.sampled_from(
    [
        "type",
        "path",
        "size",
        "lfs",
        "oid",
        "items",
        "name",
        "files",
        "is_dir",
        "layers",
        "digest",
        "annotations",
        "config",
    ]
)
LEAVES = st.sampled_from(
    [None, True, -1, 0, 2**70, 1.5, "", "file", "../x", "/x", "a\x00", "sha256:00", "x" * 300, "\u202e", "5", "-5"]
)
DOCUMENTS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))


@given(DOCUMENTS)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_documents_of_any_form_are_a_refusal_or_a_listing(tmp_path: Path, remote: RemoteServer, document: Any) -> None:
    body = json.dumps(document).encode()
    for path in (
        "/api/models/o/n/tree/main", "/storage/v1/b/models/o", "/v2/a/b/manifests/1",
        "/api/2.0/mlflow/model-versions/get-download-uri", "/api/2.0/mlflow-artifacts/artifacts",
    ):  # fmt: skip
        remote.pages[path] = body
    secret = {"HF_ENDPOINT": remote.url, "STORAGE_EMULATOR_HOST": remote.url, "OCI_PLAIN_HTTP": "true"}
    store = store_of(tmp_path, MLFLOW_TRACKING_URI=remote.url, **secret)
    for uri in ("hf://o/n", "gs://models/x", f"oci://{remote.host}/a/b:1", "models:/m/1"):
        with pytest.raises(Refusal) as caught:
            store.fetch(uri, "")
        assert len(str(caught.value)) < 1000
    assert sorted(entry.name for entry in tmp_path.iterdir()) in (["secret"], ["secret", "store"])
