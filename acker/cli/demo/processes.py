"""The demo's processes and their directory. However the demo ends, nothing of them stays.

Spark's driver starts a JVM, and that Python workers, in process groups of their own. What they share is the
session, so it is by the session that they are found and ended.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from acker.embedded.processes import tied
from acker.errors import AckerError

READY = "acker demo: ready"
"""The line that a Spark application prints when its query runs."""
_LOG_LINES = 25
_PAUSE = 0.05
_PREFIX = "acker-demo-"
_LOCK, _NEW_LOCK = "lock", "lock.new"


class ChildFailed(AckerError):
    """A process of the demo has ended before its time. `log_end` shows the last lines of its log."""

    def __init__(self, message: str, log_end: str = "") -> None:
        super().__init__(message)
        self.log_end = log_end


class Child:
    """A process that the kernel ends with this one (Linux), with its output in a log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                tied(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Return True if the process has ended. Until `Children.stop` its id stays its own."""
        if self.process.returncode is not None:
            return True
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def line(self, start: str) -> str | None:
        """The first line of the log that starts so, when it is there to its end."""
        *lines, _ = self.log.read_text(errors="replace").split("\n")
        return next((line for line in lines if line.startswith(start)), None)

    def check(self) -> None:
        """Raises ChildFailed, with the end of its log, where the process has ended."""
        if self.ended:
            lines = self.log.read_text(errors="replace").splitlines()
            raise ChildFailed(
                f"{self.name} ended with status {self.process.wait()}; its log is {self.log}",
                "\n".join(lines[-_LOG_LINES:]),
            )

    def members(self) -> list[int]:
        """The processes of the child's session that live, by Linux's /proc; none on other systems."""
        processes = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                # The program's name, in parentheses, may hold anything.
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue
            if int(session) == self.process.pid and state not in "ZX":
                processes.append(int(entry.name))
        return processes

    def alive(self) -> list[int]:
        """The members of the child's session, and the child itself where it has not ended."""
        members = self.members()
        return members if members or self.ended else [self.process.pid]


class Children:
    """The processes of the demo."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._awaited: list[tuple[Child, str, Callable[[str], object]]] = []

    def add(self, child: Child) -> Child:
        """Takes a process into care."""
        self._children.append(child)
        return child

    def await_line(self, child: Child, start: str, callback: Callable[[str], object]) -> None:
        """Has `look` call `callback` once, with the first line of the child's log that starts so."""
        self._awaited.append((child, start, callback))

    def look(self) -> None:
        """Calls what awaits a line that is there by now. Raises ChildFailed where a process has ended."""
        for child in self._children:
            child.check()
        for awaited in list(self._awaited):
            child, start, callback = awaited
            if line := child.line(start):
                self._awaited.remove(awaited)
                callback(line)

    def stop(self, timeout: float, but: Child | None = None) -> None:
        """Asks all (but one) to end (SIGTERM); after so many seconds ends their whole sessions (SIGKILL)."""
        ending = [child for child in self._children if child is not but]
        for child in ending:
            if not child.ended:
                child.process.terminate()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and any(child.alive() for child in ending):
            time.sleep(_PAUSE)
        for child in ending:
            # The leader is not reaped before its session is empty: until then no other can have its number.
            while alive := child.alive():
                for pid in alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(_PAUSE)
            child.process.wait()
            self._children.remove(child)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A temporary directory, of which only the logs are kept, and only when a process has failed.

    It is locked for as long. Directories of this user whose lock nobody holds any more are removed first.
    """
    _tidy()
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with (directory / _NEW_LOCK).open("xb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Locked before it has its name: no other demo can take it for one that was left behind.
        (directory / _NEW_LOCK).rename(directory / _LOCK)
        kept = ""
        try:
            yield directory
        except ChildFailed:
            kept = "logs"
            raise
        finally:
            for entry in directory.iterdir() if kept else (directory,):
                if entry.is_file():
                    entry.unlink()
                elif entry.name != kept:
                    shutil.rmtree(entry, ignore_errors=True)


def _tidy() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if lock.parent.lstat().st_uid != os.getuid():
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
