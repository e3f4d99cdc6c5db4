"""Streaming to disk: resume, retries, limits, redirects and the addresses that may be reached."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.fetch.addresses import AddressRefused
from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import RemoteFile
from slipway_runtime.fetch.store import Store, default_folder
from slipway_runtime.fetch.transfer import FetchLimits, Transfer, plain
from slipway_runtime.refusal import ExitCode, Refusal

from tests.runtime.remote import Answer, Asked, RemoteServer, certificate, remote_server

BODY = os.urandom(3_000_000)


@pytest.fixture
def remote() -> Iterator[RemoteServer]:
    with remote_server() as server:
        yield server


def transfer(remote: RemoteServer, pauses: list[float], limits: FetchLimits) -> Transfer:
    client = Client()
    client.trust(remote.url)
    return Transfer(client, limits, pause=pauses.append)


def bring(remote: RemoteServer, target: Path, sha256: str = "", **limits: int) -> bytes:
    transfer(remote, [], FetchLimits(**limits)).bring(RemoteFile("m", plain(f"{remote.url}/m"), sha256=sha256), target)
    return target.read_bytes()


def test_a_file_comes_whole(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = BODY
    assert bring(remote, tmp_path / "deep" / "m") == BODY
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["m"]


def test_a_broken_transfer_goes_on_where_it_broke(tmp_path: Path, remote: RemoteServer) -> None:
    def page(asked: Asked) -> Answer:
        return Answer(BODY, cut=None if len(remote.asked) > 2 else 1_200_000)

    remote.pages["/m"] = page
    assert bring(remote, tmp_path / "m") == BODY
    ranges = [asked.headers.get("range") for asked in remote.asked]
    assert ranges[0] is None and [one is not None for one in ranges[1:]] == [True, True]


def test_a_later_process_goes_on_as_well(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = Answer(BODY, cut=1_200_000)
    with pytest.raises(Refusal, match="FetchFailed"):
        bring(remote, tmp_path / "m", tries=1)
    remote.pages["/m"] = BODY
    assert bring(remote, tmp_path / "m") == BODY
    assert remote.asked[-1].headers["range"].startswith("bytes=")


def test_a_file_that_changed_meanwhile_is_not_mixed(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = Answer(BODY, cut=1_200_000)
    with pytest.raises(Refusal):
        bring(remote, tmp_path / "m", tries=1)
    remote.pages["/m"] = BODY[::-1]
    assert bring(remote, tmp_path / "m") == BODY[::-1]


def test_without_a_validator_a_transfer_starts_over(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = lambda asked: Answer(BODY, cut=1000 if len(remote.asked) == 1 else None, ranges=False)
    assert bring(remote, tmp_path / "m") == BODY
    assert "range" not in remote.asked[-1].headers


def test_passing_failures_are_waited_out(tmp_path: Path, remote: RemoteServer) -> None:
    answers = [Answer(status=503, headers={"Retry-After": "7"}), Answer(status=500), Answer(BODY)]
    remote.pages["/m"] = lambda asked: answers[len(remote.asked) - 1]
    pauses: list[float] = []
    transfer(remote, pauses, FetchLimits()).bring(RemoteFile("m", plain(f"{remote.url}/m")), tmp_path / "m")
    assert pauses[0] == 7 and 1 <= pauses[1] <= 2


@pytest.mark.parametrize(
    ("status", "reason", "code", "tries"),
    [
        (404, "ArtefactNotFound", ExitCode.ARTEFACT_NOT_FOUND, 1),
        (403, "FetchDenied", ExitCode.ARTEFACT_REFUSED, 1),
        (400, "FetchFailed", ExitCode.INTERNAL, 1),
        (503, "FetchFailed", ExitCode.INTERNAL, 5),
    ],
)
def test_failures_have_names(
    tmp_path: Path, remote: RemoteServer, status: int, reason: str, code: ExitCode, tries: int
) -> None:
    remote.pages["/m"] = Answer(status=status)
    with pytest.raises(Refusal) as caught:
        bring(remote, tmp_path / "m")
    assert (caught.value.reason, caught.value.code, len(remote.asked)) == (reason, code, tries)


def test_the_size_is_bounded_by_what_comes(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = BODY
    with pytest.raises(Refusal, match="ArtefactTooLarge"):
        bring(remote, tmp_path / "m", max_bytes=1000)
    assert not (tmp_path / "m").exists()


def test_a_named_digest_is_checked(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = BODY
    with pytest.raises(Refusal, match="DigestMismatch"):
        bring(remote, tmp_path / "m", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_redirects_are_followed_within_bounds(tmp_path: Path, remote: RemoteServer) -> None:
    remote.pages["/m"] = Answer(status=302, headers={"Location": "/other"})
    remote.pages["/other"] = b"here"
    assert bring(remote, tmp_path / "m") == b"here"
    remote.pages["/other"] = Answer(status=307, headers={"Location": "/m"})
    with pytest.raises(Refusal, match="more than 5 redirects"):
        bring(remote, tmp_path / "n")
    remote.pages["/m"] = Answer(status=302, headers={"Location": "file:///etc/passwd"})
    with pytest.raises(Refusal, match="FetchRefused"):
        bring(remote, tmp_path / "n")


def test_redirects_to_private_and_metadata_addresses_are_refused(tmp_path: Path, remote: RemoteServer) -> None:
    port = remote.host.rpartition(":")[2]
    for name in ("localhost", "[::ffff:127.0.0.1]"):
        remote.pages["/m"] = Answer(status=302, headers={"Location": f"http://{name}:{port}/secret"})
        remote.pages["/secret"] = b"secret"
        with pytest.raises(Refusal, match="private address"):
            bring(remote, tmp_path / "m", tries=1)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "224.0.0.1", "0.0.0.0"])
def test_link_local_addresses_are_never_reached(address: str) -> None:
    client = Client()
    client.trust("http://metadata.internal/")
    with pytest.raises(AddressRefused):
        client._judge("metadata.internal", address)
    client._judge("metadata.internal", "10.0.0.1")
    client._judge("elsewhere", "93.184.216.34")


def test_credentials_stay_with_their_host(remote: RemoteServer) -> None:
    with remote_server() as other:
        remote.pages["/m"] = Answer(status=302, headers={"Location": f"{other.url}/m"})
        other.pages["/m"] = b"here"
        client = Client()
        client.trust(remote.url)
        with client.get(f"{remote.url}/m", {"Authorization": "Bearer secret"}) as response:
            assert response.status == 200
        assert remote.asked[0].headers["authorization"] == "Bearer secret"
        assert "authorization" not in other.asked[0].headers


def test_https_and_no_way_back_to_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: RemoteServer) -> None:
    pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "token").write_text("t0ken\n")
    pauses: list[float] = []
    store = Store(tmp_path / "store", Credentials(secret), FetchLimits(tries=1), pause=pauses.append)
    with remote_server(context) as secure:
        secure.pages["/models/m.pt"] = BODY
        with pytest.raises(Refusal, match="FetchFailed"):
            store.fetch(f"{secure.url}/models/m.pt", "")  # nobody vouches for the certificate
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        path = store.fetch(f"{secure.url}/models/m.pt", "")
        assert path.read_bytes() == BODY
        assert secure.asked[-1].headers["authorization"] == "Bearer t0ken"
        count = len(secure.asked)
        digest = digest_of(path)
        assert digest_of(store.fetch(f"{secure.url}/models/m.pt", digest)) == digest
        assert digest_of(store.fetch(f"{secure.url}/models/m.pt", digest)) == digest
        assert len(secure.asked) == count + 1
        secure.pages["/models/m.pt"] = Answer(status=302, headers={"Location": f"{remote.url}/m"})
        with pytest.raises(Refusal, match="redirect from https to http"):
            store.fetch(f"{secure.url}/models/m.pt", "")


def test_where_nothing_can_be_written_models_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.delenv("SLIPWAY_MODEL_DIR", raising=False)
    assert default_folder().name == "slipway-models"
    monkeypatch.setenv("SLIPWAY_MODEL_DIR", "/models")
    assert default_folder() == Path("/models")
