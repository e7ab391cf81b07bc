"""Looks for known vulnerabilities in what acker ships: locked Python packages, and the dashboard's from npm.

    uv run --no-sync python .ci/audit.py

Ends with 1 where an advisory names one that is shipped and is not in `ACCEPTED`. Where no service that knows
advisories answers (no network, a mirror without them), it says so and ends with 0: no run hangs on them.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ACCEPTED: dict[str, str] = {}
"""Advisories that may stay: id (of PyPI, or GHSA-... of npm) -> why, such as that there is no fix yet."""

PIP_AUDIT = "pip-audit==2.10.1"
SERVICES = ("pypi", "osv")
SECONDS = 120.0
"""Longest that one program may take."""
PATIENCE = 10
"""Seconds that a service may take for an answer."""

ROOT = Path(__file__).resolve().parent.parent


class Unanswered(Exception):
    """No advisories can be had; the message says why."""


def main() -> int:
    """Audits both; returns the exit status."""
    vulnerable = False
    for what, audit in AUDITS.items():
        try:
            found = audit()
        except Unanswered as reason:
            print(f"{what}: not audited, {reason}")
            continue
        named = {advisory: text for advisory, text in found.items() if advisory not in ACCEPTED}
        for advisory, text in named.items():
            print(f"{what}: {advisory}: {text}")
        if not named:
            print(f"{what}: no vulnerability is known")
        vulnerable = vulnerable or bool(named)
    return 1 if vulnerable else 0


def python_packages() -> dict[str, str]:
    """Advisory -> which locked package it names; of the package with all extras, without what tests need."""
    command = "uv export --quiet --locked --all-extras --no-dev --no-emit-project --no-hashes --no-header"
    exported = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=True)
    pinned = [line for line in exported.stdout.splitlines() if line[:1].strip("# ")]
    reasons = []
    for service in SERVICES:
        try:
            _ask(service, pinned[:1])  # a service that does not know the first one is not asked for all
            packages = _ask(service, pinned)
        except Unanswered as reason:
            reasons.append(f"{service}: {reason}")
            continue
        found = {}
        for package in packages:
            for one in package.get("vulns", []):
                fixed = ", ".join(one["fix_versions"]) or "no version"
                found[one["id"]] = f"{package['name']} {package['version']}, fixed in {fixed}"
        return found
    raise Unanswered("; ".join(reasons))


def _ask(service: str, pinned: list[str]) -> list[dict[str, Any]]:
    """What pip-audit finds of pinned packages at a service."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pinned) + "\n")
        file.flush()
        options = "--format json --desc off --progress-spinner off --no-deps --disable-pip"
        where = f"--timeout {PATIENCE} --vulnerability-service {service} --requirement {file.name}"
        said = _run(*f"uv tool run --quiet --from {PIP_AUDIT} pip-audit {options} {where}".split())
    packages = _json(said).get("dependencies", [])
    if all("skip_reason" in package for package in packages):
        raise Unanswered(_last_line(said) if not packages else "it knows no package")
    return list(packages)


def npm_packages() -> dict[str, str]:
    """Advisory -> which package of the dashboard's lock file it names, without what its tests need."""
    options = f"--omit=dev --package-lock-only --fetch-retries=1 --fetch-timeout={PATIENCE * 1000}"
    said = _run(sys.executable, *f"dashboard/build.py npm audit --json {options}".split())
    report = _json(said)
    if "vulnerabilities" not in report:
        raise Unanswered(str(report.get("message") or report.get("error") or _last_line(said)))
    return {
        str(one["url"]).rpartition("/")[2]: f"{one['name']} {one['range']}, {one['severity']}: {one['title']}"
        for package in report["vulnerabilities"].values()
        for one in package["via"]
        if isinstance(one, dict)
    }


def _run(*command: str) -> str:
    """What a program prints, whatever its status says."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unanswered(f"no answer within {SECONDS:.0f} s") from None
    return f"{done.stdout}\n{done.stderr}"


def _json(said: str) -> dict[str, Any]:
    """The object that is in what a program printed; empty where there is none."""
    try:
        found, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _last_line(said: str) -> str:
    return said.strip().rpartition("\n")[2][:120]


AUDITS = {"Python packages": python_packages, "npm packages": npm_packages}

if __name__ == "__main__":
    sys.exit(main())
