import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def python(program: str, *arguments: object, cwd: Path) -> str:
    """Runs a program in a process of its own, away from the checkout; returns what it prints."""
    run = subprocess.run(
        [sys.executable, "-I", "-c", program, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_wheel_holds_the_package_scripts_and_dashboard_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "acker",
        "api",
        f"{wheel.name.rsplit('-', 3)[0]}.dist-info",
    }
    scripts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lua").rglob("*.lua")}
    assert scripts
    assert {name.removeprefix("acker/") for name in names if name.endswith(".lua")} == scripts
    assert "acker/py.typed" in names
    built = {name for name in names if name.startswith("api/static/")}
    assert {"api/static/index.html", "api/static/theme.js", "api/static/icon.svg"} < built
    assert {Path(name).suffix for name in built if name.startswith("api/static/assets/")} == {".js", ".css"}


def test_scripts_are_the_same_from_a_checkout_and_a_zipped_wheel(wheel: Path, tmp_path: Path) -> None:
    program = """
import json, sys
sys.path[:0] = sys.argv[1:]
import acker
from acker.store.scripts import load_all
print(json.dumps([acker.__file__, {name: script.sha.decode() for name, script in load_all().items()}]))
"""
    zipped, from_wheel = json.loads(python(program, wheel, cwd=tmp_path))
    checkout, from_checkout = json.loads(python(program, ROOT, cwd=tmp_path))
    assert Path(zipped).is_relative_to(wheel)
    assert Path(checkout).is_relative_to(ROOT / "acker")
    assert from_wheel == from_checkout


def test_import_brings_in_nothing_that_takes_long(tmp_path: Path) -> None:
    program = """
import json, sys
sys.path.insert(0, sys.argv[1])
import acker
print(json.dumps(sorted(sys.modules)))
"""
    modules = set(json.loads(python(program, ROOT, cwd=tmp_path)))
    assert "acker.errors" in modules
    slow = {"asyncio", "numpy", "pandas", "pyarrow", "pyspark", "redis", "acker.collectors", "acker.spark"}
    assert not slow & modules


def test_no_module_imports_tests_or_a_conftest() -> None:
    """Helpers that several tests need are in tests/helpers."""
    shared = re.compile(r"^ *(from|import) +tests\b.*\b(test_\w+|conftest)\b", re.MULTILINE)
    modules = [
        path
        for folder in ("tests", "benchmarks", "examples", "harness")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(modules) > 300
    assert shared.search("from tests.lines.test_lines import Job")
    assert [path for path in modules if shared.search(path.read_text())] == []
