"""The processes of `acker demo`, and what it leaves behind."""

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from acker.cli.demo.options import Options
from acker.cli.demo.processes import Child, ChildFailed, Children, temporary_directory
from acker.cli.demo.progress import Progress
from acker.cli.demo.supervisor import Demo, Signals
from acker.ledger.client import open_ledger
from acker.store.client import Store
from api.asgi.dashboard import folder
from tests.helpers.servers.servers import wait_until


def child(tmp_path: Path, program: str) -> Child:
    return Child("child", [sys.executable, "-c", program], tmp_path / "log", environment={})


def test_stopping_ends_the_whole_session_of_a_child_that_does_not_listen(tmp_path: Path) -> None:
    program = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], process_group=0)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    children = Children()
    deaf = children.add(child(tmp_path, program))
    wait_until(lambda: deaf.line("ready"))
    members = deaf.members()
    assert len(members) == 2
    children.stop(0.2)
    assert not any(_runs(pid) for pid in members)


def test_stopping_waits_for_a_child_that_ends_in_good_order(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, time\n"  # a signal may come in the middle of a print, which is not reentrant
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'bye\\n'), sys.exit(3)))\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(60)\n"
    )
    children = Children()
    listening = children.add(child(tmp_path, program))
    wait_until(lambda: listening.line("ready"))
    started = time.monotonic()
    children.stop(30.0)
    assert time.monotonic() - started < 20
    assert listening.line("bye")
    assert listening.process.returncode == 3


def test_a_child_that_ends_by_itself_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    failing = child(tmp_path, "import sys; print('x ' * 3); sys.exit('out of words')")
    wait_until(lambda: failing.ended)
    with pytest.raises(ChildFailed, match=r"child ended with status 1; its log is .*log") as failed:
        failing.check()
    assert "out of words" in failed.value.log_end


HOLD = """
import sys, tempfile
from acker.cli.demo.processes import temporary_directory
tempfile.tempdir = sys.argv[1]
with temporary_directory() as directory:
    print(directory, flush=True)
    sys.stdin.read()
"""


def test_a_directory_that_a_killed_demo_has_left_is_removed_by_the_next_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "acker-demo-failed" / "logs").mkdir(parents=True)
    with ExitStack() as stack:
        holders = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLD, str(tmp_path)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )
            for _ in range(2)
        ]  # fmt: skip
        killed, alive = (Path(one.stdout.readline().strip()) for one in holders if one.stdout)
        holders[0].kill()
        holders[0].wait()
        with temporary_directory() as own:
            assert set(tmp_path.iterdir()) == {own, alive, tmp_path / "acker-demo-failed"}
        assert not killed.exists()
        holders[1].communicate("")
    assert [path.name for path in tmp_path.iterdir()] == ["acker-demo-failed"]


def test_of_a_failed_run_the_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail() -> None:
        with temporary_directory() as directory:
            (directory / "logs").mkdir()
            (directory / "server").mkdir()
            raise ChildFailed("split ended")

    with pytest.raises(ChildFailed):
        fail()
    [directory] = tmp_path.iterdir()
    assert [path.name for path in directory.iterdir()] == ["logs"]


@pytest.mark.timeout(360)  # a whole service starts
def test_a_service_tells_once_where_it_is_and_why_it_has_no_dashboard(
    tmp_path: Path, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = tmp_path / "build.py"
    builder.write_text("raise SystemExit('no Node')")
    broken = (
        f"import pathlib, api.asgi.dashboard; api.asgi.dashboard._BUILDER = pathlib.Path({str(builder)!r}); "
    )
    monkeypatch.setattr("acker.cli.demo.supervisor._PROGRAM", broken + "from acker.cli import main; main()")
    said = StringIO()
    progress = Progress(Console(file=said, width=200))
    demo = Demo(Options(), progress, tmp_path, open_ledger(Store(valkey_url), "demo"), [], 0.0, Signals())

    def look() -> list[str]:
        demo.children.look()
        return [line[9:] for line in sorted(said.getvalue().splitlines(), key=lambda line: line[9:])]

    try:
        trouble = "no dashboard: the dashboard could not be built"
        wait_until(lambda: len(look()) == 2, timeout=240)
        address, said_of_it = look()
        address = address.removeprefix("dashboard ")
        assert said_of_it == trouble
        assert "not built" in httpx.get(address, timeout=60).text or folder() is not None
    finally:
        demo.children.stop(30.0)


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
