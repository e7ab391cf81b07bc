"""CI's look at known vulnerabilities (.ci/audit.py), with npm itself and a registry that knows some."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parent.parent.parent / ".ci" / "audit.py"
ADVISORY = {
    "id": 1,
    "url": "https://advisories.example/GHSA-1111-2222-3333",
    "title": "opens a door",
    "severity": "high",
    "vulnerable_versions": ">=0",
}


@contextmanager
def registry(advisories: dict[str, Any]) -> Iterator[str]:
    """The URL of a registry that answers npm's question for advisories, and no other."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(advisories).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:  # of what else the registry knows of a package
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def audited(url: str, *accepted: str) -> tuple[int, str]:
    """Audits npm's packages against a registry; the exit status, and what was printed."""
    program = (
        f"import runpy; audit = runpy.run_path({str(AUDIT)!r})\n"
        "audit['main'].__globals__.update(SECONDS=600, PATIENCE=300)\n"
        "del audit['AUDITS']['Python packages']\n"
        f"audit['ACCEPTED'].update(dict.fromkeys({accepted!r}, 'a test'))\n"
        "raise SystemExit(audit['main']())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "npm_config_registry": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_a_known_vulnerability_of_what_is_shipped_fails_unless_it_is_accepted() -> None:
    with registry({"react": [ADVISORY]}) as url:
        status, said = audited(url)
        assert (status, said.count("\n")) == (1, 1)
        assert "GHSA-1111-2222-3333: react >=0, high: opens a door" in said
        assert audited(url, "GHSA-1111-2222-3333") == (0, "npm packages: no vulnerability is known\n")


def test_without_an_advisory_all_is_well() -> None:
    with registry({}) as url:
        assert audited(url) == (0, "npm packages: no vulnerability is known\n")


def test_a_service_that_does_not_answer_is_reported_and_fails_nothing() -> None:
    with registry({}) as url:
        pass
    status, output = audited(url)
    assert status == 0
    assert output.startswith("npm packages: not audited, ")
    assert output.count("\n") == 1


@pytest.mark.parametrize("printed", ["", "{", "[1]", "npm error: no {", '{"vulnerabilities": '])
def test_what_is_no_report_is_no_answer(printed: str) -> None:
    import runpy

    assert runpy.run_path(str(AUDIT))["_json"](printed) == {}
