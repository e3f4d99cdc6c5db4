"""Known vulnerabilities of what is locked, by the package index's own data; ``python -m e2e.supply.audit``.

Where the index offers no such data, that is said in so many words: nothing was found is not the same as nothing was
looked up.
"""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.supply.locks import DEV_LOCK, TORCH_LOCK, Lock

SECONDS = 120


@dataclass(slots=True)
class Report:
    """What is known of the packages of all locks."""

    looked_up: int = 0
    unknown: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def add(self, answer: Mapping[str, Any]) -> None:
        """Take in pip-audit's answer about one lock."""
        for package in answer["dependencies"]:
            if "skip_reason" in package:
                self.unknown.append(package["name"])
                continue
            self.looked_up += 1
            for fault in package["vulns"]:
                fixed = ", ".join(fault.get("fix_versions") or ()) or "nothing yet"
                self.found.append(f"{package['name']} {package['version']}: {fault['id']}, fixed by {fixed}")

    @property
    def text(self) -> str:
        """The report in lines."""
        if not self.looked_up:
            return "audit: no data offered: the index knows nothing of vulnerabilities, and none were looked up"
        lines = [f"audit: {self.looked_up} packages looked up, {len(set(self.found))} known vulnerabilities"]
        if self.unknown:
            lines.append(f"audit: no data offered on {', '.join(sorted(set(self.unknown)))}")
        return "\n".join([*lines, *sorted(set(self.found))])


def ask(lock: Lock) -> Mapping[str, Any] | str:
    """pip-audit's answer, or why there is none; raises OSError for a lock that is not there."""
    lock.file.read_bytes()
    command = [f"{sysconfig.get_path('scripts')}/pip-audit", "--requirement", str(lock.file), "--disable-pip"]
    command += ["--require-hashes", "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer in {SECONDS} s"
    try:
        parsed: Mapping[str, Any] = json.loads(answer.stdout)
    except json.JSONDecodeError:
        return (answer.stderr.strip().splitlines() or ["no answer"])[-1]
    return parsed


def conclude(answers: Iterable[Mapping[str, Any] | str]) -> tuple[int, str]:
    """Exit status and text: 1 when a vulnerability is known, 0 when none is or nothing can be looked up."""
    report, failures = Report(), []
    for answer in answers:
        if isinstance(answer, str):
            failures.append(f"audit: no data offered: {answer}")
        else:
            report.add(answer)
    return (1 if report.found else 0), "\n".join([*dict.fromkeys(failures), report.text])


def main() -> int:
    """Ask for the lock that holds the others' packages as well, and for torch's."""
    code, text = conclude(ask(lock) for lock in (DEV_LOCK, TORCH_LOCK))
    sys.stdout.write(text + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
