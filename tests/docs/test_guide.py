"""The programs that the guide begins with, run as they are printed."""

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.guide import DOCS


def printed(page: str, url: str, directory: Path) -> Path:
    """The first program of a page as a file; the store is behind `url`."""
    [program, *_] = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert "redis://localhost:6379" in program
    file = directory / "program.py"
    file.write_text(program.replace("redis://localhost:6379", url))
    return file


def test_the_function_of_the_guide_answers(valkey_url: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, printed("drpc.md", valkey_url, tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stdout.splitlines() == ["2", "[2, 3]"]


def test_the_transaction_of_the_guide_is_acked(valkey_url: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, printed("collectors.md", valkey_url, tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert sorted(run.stdout.splitlines()) == [f"order-{n} acked" for n in range(3)]


def test_the_line_of_the_guide_counts(valkey_url: str, tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-u", printed("lines.md", valkey_url, tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert sorted(program.stdout.readline() for _ in range(2)) == ["2\n", "3\n"]
        program.communicate("\n", timeout=60)
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize("page", ["lines.md", "drpc.md"])
def test_later_examples_use_no_names_but_those_of_earlier_ones_and_of_a_sentence(page: str) -> None:
    text = (DOCS / page).read_text()
    [sentence] = re.findall(
        r"Later examples on\s+this page go on from this one\. In them (.*?)\.\n", text, re.DOTALL
    )
    known = set(dir(builtins)) | set(re.findall(r"`(\w+)`(?: is)? (?:an?|the)\b", sentence))
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(programs) > 2
    for program in programs:
        used = set[str]()
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
            elif isinstance(node, ast.arg):
                known.add(node.arg)
            elif isinstance(node, ast.alias):
                known.add(node.asname or node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                known.add(node.name)
        assert used <= known
