"""Locks agree with pyproject.toml and name no index, licences may be shipped, audits say what they do not know."""

import json
import re

import pytest
from packaging.utils import canonicalize_name

from e2e.supply import audit, licences, sbom
from e2e.supply.locks import DEV_LOCK, IMAGES, OPERATOR_LOCK, ROOT, RUNTIME_LOCK, TORCH_LOCK, direct, pins
from tests.chart.pins import pins as constrained

LOCKS = (OPERATOR_LOCK, RUNTIME_LOCK, DEV_LOCK, TORCH_LOCK)
BY_TITLE = pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.title)


@BY_TITLE
def test_every_package_is_exact_and_has_hashes(lock) -> None:
    text = lock.file.read_text()
    found = pins(text)
    assert len(found) > 15
    assert all(pin.hashes for pin in found)
    assert len({pin.name for pin in found}) == len(found)
    unread = [
        line for line in text.splitlines() if not re.match(r"#|    --hash=sha256:[0-9a-f]{64}|[a-z0-9.-]+==", line)
    ]
    assert not unread


@BY_TITLE
def test_no_lock_names_an_index_or_a_machine(lock) -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links| @ |/work|/tmp", lock.file.read_text())


@pytest.mark.parametrize("lock", [OPERATOR_LOCK, RUNTIME_LOCK, DEV_LOCK], ids=lambda lock: lock.title)
def test_every_direct_dependency_is_locked_within_its_bounds(lock) -> None:
    locked = {pin.name: pin.version for pin in pins(lock.file.read_text())}
    for requirement in direct(lock):
        name = canonicalize_name(requirement.name)
        if name != "torch":
            assert name in locked, f"{name} is not locked: python -m e2e.supply.locks"
            assert requirement.specifier.contains(locked[name]), f"{requirement}: {locked[name]}"


@pytest.mark.parametrize("lock", IMAGES, ids=lambda lock: lock.title)
def test_an_images_lock_holds_what_its_constraints_pin(lock) -> None:
    locked = {pin.name: pin.version for pin in pins(lock.file.read_text())}
    pinned = constrained(lock.path.split("/")[0])
    assert pinned.items() <= locked.items(), "python -m e2e.supply.locks"
    assert set(locked) - set(pinned) <= {"setuptools"}


def test_torch_is_locked_apart_in_the_version_of_the_images() -> None:
    (version,) = {pin.version for pin in pins(TORCH_LOCK.file.read_text()) if pin.name == "torch"}
    assert f"ARG TORCH={version}\n" in (ROOT / "runtime_image/Dockerfile").read_text()
    assert f"torch=={version}" in (ROOT / "Makefile").read_text()
    assert all(pin.name != "torch" for lock in (*IMAGES, DEV_LOCK) for pin in pins(lock.file.read_text()))


def test_images_install_from_their_locks_with_hashes() -> None:
    """All but torch's build for CPUs, and what is ours."""
    for lock in IMAGES:
        text = (ROOT / lock.path).parent.joinpath("Dockerfile").read_text()
        installs = re.findall(r"pip install[^\n]*", text)
        assert any("--require-hashes --requirement" in one and "requirements.lock" in one for one in installs)
        rest = [one for one in installs if "--require-hashes" not in one]
        assert all("--no-deps" in one for one in rest), rest


def test_the_page_of_licences_is_current_and_none_of_them_binds_whoever_ships_an_image() -> None:
    assert (ROOT / licences.PAGE).read_text() == licences.page()
    assert not [row for row in licences.table().items() if licences.FORBIDDEN.search(row[1][1])]


@pytest.mark.parametrize(
    ("text", "forbidden"),
    [
        ("MIT", False), ("Mozilla Public License 2.0 (MPL 2.0)", False), ("LGPL-3.0-or-later", False),
        ("GNU Lesser General Public License v3", False), ("GPL-3.0", True), ("AGPL-3.0-only", True),
        ("GNU General Public License v2 (GPLv2)", True), ("SSPL-1.0", True), ("NVIDIA Proprietary Software", True),
    ],
)  # fmt: skip
def test_which_licences_are_refused(text: str, forbidden: bool) -> None:
    assert bool(licences.FORBIDDEN.search(text)) is forbidden


def known(name: str, *faults: str) -> dict:
    return {"name": name, "version": "1", "vulns": [{"id": fault, "fix_versions": ["2"]} for fault in faults]}


UNKNOWN = {"name": "b", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ([{"dependencies": [known("a")]}], 0, "audit: 1 packages looked up, 0 known vulnerabilities"),
        ([{"dependencies": [known("a", "CVE-1")]}], 1, "a 1: CVE-1, fixed by 2"),
        ([{"dependencies": [known("a"), UNKNOWN]}], 0, "audit: no data offered on b"),
        ([{"dependencies": [UNKNOWN]}], 0, "audit: no data offered: the index knows nothing of vulnerabilities"),
        (["connection refused"], 0, "audit: no data offered: connection refused"),
        (["late", {"dependencies": [known("a", "CVE-1")]}], 1, "audit: no data offered: late"),
    ],
)
def test_an_audit_says_what_it_found_and_what_it_could_not_look_up(answers: list, code: int, said: str) -> None:
    found, text = audit.conclude(answers)
    assert found == code
    assert said in text


def test_a_bill_of_materials_lists_every_package_with_its_hashes(tmp_path) -> None:
    bill = json.loads(sbom.write(OPERATOR_LOCK, tmp_path).read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {canonicalize_name(part["name"]): part for part in bill["components"]}
    assert set(listed) == {pin.name for pin in pins(OPERATOR_LOCK.file.read_text())}
    assert "kopf" in listed
    assert all(re.search(r'"(content|alg)"', json.dumps(part)) for part in listed.values())


def test_make_has_the_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    check = makefile.split("\ncheck:")[1].split("\n\n")[0]
    assert "e2e.supply.audit" in check
    assert "\nsbom:" in makefile
    assert "\nlocks:" in makefile
