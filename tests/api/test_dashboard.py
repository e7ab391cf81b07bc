"""The built files, where there are any; that they work is tested in a browser."""

from pathlib import Path

import httpx
import pytest

from api.asgi import dashboard
from tests.helpers.faces import patient
from tests.helpers.servers.servers import wait_until


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "dist"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>page</title>")
    (root / "assets" / "index-1a2b.js").write_text("let x = 1;" * 1000)
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(dashboard, "folder", root.resolve)
    return root


def test_files_are_served_and_every_other_path_is_the_page(address: str, built: Path) -> None:
    script = patient.get(f"{address}/assets/index-1a2b.js")
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-encoding"] == "gzip"
    assert script.headers["content-type"].startswith("text/javascript")
    for path in ("/", "/topologies/words?window=10m", "/topologies/words/trees"):
        page = patient.get(address + path)
        assert "<title>page" in page.text, path
        assert page.headers["cache-control"] == "no-cache"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        for known, status in (
            (page.headers["etag"], 304),
            (f'"x", W/{page.headers["etag"]}', 304),
            ('"x"', 200),
        ):
            again = patient.get(address + path, headers={"If-None-Match": known})
            assert (again.status_code, again.headers["etag"]) == (status, page.headers["etag"])


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/%2e%2e/secret.txt", "/assets/../../secret.txt", "/nothing.js", "/%00.js"]
)
def test_nothing_else_is_served(address: str, built: Path, path: str) -> None:
    answer = patient.get(address + path)
    assert "secret" not in answer.text
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_unknown_paths_of_the_api_are_problems(client: httpx.Client, address: str, built: Path) -> None:
    assert client.get("/nothing").json()["type"] == "urn:acker:not-found"
    answer = client.get("/topologies/words/fail")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert patient.post(f"{address}/").status_code == 405


def test_without_built_files_a_page_says_so(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "folder", lambda: None)
    assert "not built" in patient.get(f"{address}/").text
    assert patient.get(f"{address}/topologies").status_code == 404


BUILDER = """
import os, pathlib, subprocess, sys, time
npm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
new = pathlib.Path(__file__).with_name("new")
new.write_text(f"{os.getpid()} {npm.pid}")
new.rename(new.with_name("pids"))
time.sleep(600)
"""


def test_what_builds_beside_the_service_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "_BUILDER", tmp_path / "build.py")
    (tmp_path / "build.py").write_text(BUILDER)
    reported: list[str] = []
    with dashboard.preparing(reported.append):
        wait_until((tmp_path / "pids").exists, timeout=60)
        running = (tmp_path / "pids").read_text().split()
        assert all(map(_lives, running))
    wait_until(lambda: not any(map(_lives, running)), timeout=60)
    assert reported == [], "that it was ended is no failure"


def _lives(pid: str) -> bool:
    try:
        # Not everywhere is there somebody who takes an orphan's status.
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
