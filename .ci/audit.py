"""Looks for known vulnerabilities in the packages that acker ships: Python's, and the dashboard's from npm.

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
    for packages, audit in AUDITS.items():
        try:
            advisories = audit()
        except Unanswered as reason:
            print(f"{packages}: not audited, {reason}")
            continue
        refused = {advisory: text for advisory, text in advisories.items() if advisory not in ACCEPTED}
        for advisory, text in refused.items():
            print(f"{packages}: {advisory}: {text}")
        if not refused:
            print(f"{packages}: no vulnerability is known")
        vulnerable = vulnerable or bool(refused)
    return 1 if vulnerable else 0


def python_packages() -> dict[str, str]:
    """Returns advisories, each with the locked package that it names: of all extras, not of the tests."""
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
        advisories = {}
        for package in packages:
            for advisory in package.get("vulns", []):
                fixed = ", ".join(advisory["fix_versions"]) or "no version"
                advisories[advisory["id"]] = f"{package['name']} {package['version']}, fixed in {fixed}"
        return advisories
    raise Unanswered("; ".join(reasons))


def _ask(service: str, pinned: list[str]) -> list[dict[str, Any]]:
    """Returns pip-audit's report on pinned packages, by the advisories of a service."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pinned) + "\n")
        file.flush()
        options = "--format json --desc off --progress-spinner off --no-deps --disable-pip"
        source = f"--timeout {PATIENCE} --vulnerability-service {service} --requirement {file.name}"
        output = _run(*f"uv tool run --quiet --from {PIP_AUDIT} pip-audit {options} {source}".split())
    packages = _json(output).get("dependencies", [])
    if all("skip_reason" in package for package in packages):
        raise Unanswered(_last_line(output) if not packages else "it knows no package")
    return list(packages)


def npm_packages() -> dict[str, str]:
    """Returns advisories, each with the package of the dashboard that it names; its tests' do not count."""
    options = f"--omit=dev --package-lock-only --fetch-retries=1 --fetch-timeout={PATIENCE * 1000}"
    output = _run(sys.executable, *f"dashboard/build.py npm audit --json {options}".split())
    report = _json(output)
    if "vulnerabilities" not in report:
        raise Unanswered(str(report.get("message") or report.get("error") or _last_line(output)))
    return {
        str(fault["url"]).rpartition("/")[2]: (
            f"{fault['name']} {fault['range']}, {fault['severity']}: {fault['title']}"
        )
        for package in report["vulnerabilities"].values()
        for fault in package["via"]
        if isinstance(fault, dict)
    }


def _run(*command: str) -> str:
    """Returns the output of a program, whatever its exit status is."""
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unanswered(f"no answer within {SECONDS:.0f} s") from None
    return f"{run.stdout}\n{run.stderr}"


def _json(output: str) -> dict[str, Any]:
    """Returns the JSON object in the output of a program; an empty object if it holds none."""
    try:
        report, _ = json.JSONDecoder().raw_decode(output[output.index("{") :])
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2][:120]


AUDITS = {"Python packages": python_packages, "npm packages": npm_packages}

if __name__ == "__main__":
    sys.exit(main())
