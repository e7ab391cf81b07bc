"""The house: limits of folders and files, one place for each thing, and no circles of imports."""

import importlib
import re
import subprocess
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
ENTRIES = {"acker": 14, "api": 14, "lua": 14, "dashboard/src": 14, "tests": 25, "harness": 25}
"""Entries that a folder has at most, in all folders of these: files and folders that people write."""
LINES = 400
"""Lines that a file has at most that people write."""
WIDTH = 110
PREFIX = 3
"""Files of a folder that may begin with the same word: more of them are a folder."""
WRITTEN = {".py", ".lua", ".ts", ".tsx", ".css"}
GENERATED = re.compile(r"\.gen\.d\.ts$")
EXPORTING = ("acker", "acker.streams", "acker.lines", "acker.drpc", "acker.spark")


def written() -> list[Path]:
    """The files of the checkout that people write, from its root."""
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = sorted(set(known.stdout.splitlines()))
    return [Path(name) for name in names if Path(name).suffix in WRITTEN and (ROOT / name).exists()]


FILES = [path for path in written() if not GENERATED.search(f"/{path}")]


@pytest.mark.parametrize("top", ENTRIES)
def test_a_folder_has_few_entries(top: str) -> None:
    entries: dict[Path, set[str]] = {}
    for path in FILES:
        if path.is_relative_to(top) and path.name != "__init__.py":
            for inner in (path, *path.parents):
                entries.setdefault(inner.parent, set()).add(inner.name)
    found = {str(folder): len(names) for folder, names in entries.items() if folder.is_relative_to(top)}
    assert {folder: count for folder, count in found.items() if count > ENTRIES[top]} == {}


def test_a_file_is_short() -> None:
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}


def test_a_line_of_lua_is_short() -> None:
    """Comments, too, which are not in the scripts that luacheck gets."""
    scripts = [path for path in FILES if path.suffix == ".lua"]
    lines = [(path, line) for path in scripts for line in (ROOT / path).read_text().splitlines()]
    assert [f"{path}: {line}" for path, line in lines if len(line) > WIDTH] == []


def test_no_folder_lists_a_prefix() -> None:
    words = Counter(
        (str(path.parent), path.stem.split("_")[0])
        for path in FILES
        if path.parts[0] in ("acker", "api", "lua") and "_" in path.stem.strip("_")
    )
    assert {where: count for where, count in words.items() if count > PREFIX} == {}


def test_no_import_leads_in_a_circle() -> None:
    graph = grimp.build_graph("acker", "api")
    modules = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(modules).prepare()  # raises CycleError, which names one


def test_an_exported_class_lives_in_a_file_of_its_name() -> None:
    """`Outcome` in outcome.py, `Segment` in segments.py, `StreamReader` in reader.py."""
    elsewhere = {}
    for package in EXPORTING:
        for name in importlib.import_module(package).__all__:
            exported = getattr(importlib.import_module(package), name)
            if not isinstance(exported, type) or exported.__module__ == "acker.errors":
                continue
            file = exported.__module__.rpartition(".")[2].removesuffix("s")
            snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().removesuffix("s")
            if not f"_{snake}".endswith(f"_{file}"):
                elsewhere[name] = exported.__module__
    assert elsewhere == {}


def test_a_script_lies_in_the_folder_of_its_function() -> None:
    for path in FILES:
        if path.suffix == ".lua" and "includes" not in path.parts and path.stem != "chain":
            module = ROOT / "acker" / path.relative_to("lua").parent / "scripts.py"
            assert f"\ndef {path.stem}(" in module.read_text(), path


def test_folders_of_tests_are_those_of_what_they_test() -> None:
    packages = {path.parent.relative_to("acker") for path in FILES if path.parts[0] == "acker"}
    tops = {folder.parts[0] for folder in packages if folder.parts}
    tested = {path.parent.relative_to("tests") for path in FILES if path.parts[0] == "tests"}
    assert {folder for folder in tested if folder.parts and folder.parts[0] in tops} <= packages
