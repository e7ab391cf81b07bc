"""The demo's processes: started each in a session of its own, and ended with all that they have started.

Spark's driver starts a JVM, and that Python workers, in process groups of their own. What they share is the
session, so it is by the session that they are found and ended.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from acker.embedded.processes import tied
from acker.errors import AckerError

READY = "acker demo: ready"
"""What a Spark application prints when its query runs."""
_LOG_LINES = 25
_PAUSE = 0.05


class ChildFailed(AckerError):
    """A process of the demo has ended before its time. `log_end` shows the last lines of its log."""

    def __init__(self, message: str, log_end: str = "") -> None:
        super().__init__(message)
        self.log_end = log_end


class Child:
    """A process that the kernel ends with this one (Linux), with its output in a log.

    piped: its standard output is a pipe to be read, and only its errors go to the log.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        directory: Path | None = None,
        piped: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                tied(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else output,
                stderr=output,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the process has ended. Until `Children.stop` its id stays its own."""
        if self.process.returncode is not None:
            return True
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def line(self, start: str) -> str | None:
        """The first line of the log that starts so, when it is there to its end."""
        *lines, _ = self.log.read_text(errors="replace").split("\n")
        return next((line for line in lines if line.startswith(start)), None)

    def failure(self) -> ChildFailed:
        """What to say when the process has ended though it should not have: with the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return ChildFailed(
            f"{self.name} ended with status {self.process.wait()}; its log is {self.log}",
            "\n".join(lines[-_LOG_LINES:]),
        )

    def check(self) -> None:
        """Raises ChildFailed where the process has ended."""
        if self.ended:
            raise self.failure()

    def members(self) -> list[int]:
        """The processes of its session that live."""
        return _session(self.process.pid)


class Children:
    """The processes of the demo."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def add(self, child: Child) -> Child:
        """Takes a process into care."""
        self._children.append(child)
        return child

    def stop(self, timeout: float, but: Child | None = None) -> None:
        """Asks all (but one) to end (SIGTERM); after so many seconds ends their whole sessions (SIGKILL)."""
        ending = [child for child in self._children if child is not but]
        for child in ending:
            if not child.ended:
                child.process.terminate()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and any(_alive(child) for child in ending):
            time.sleep(_PAUSE)
        for child in ending:
            # The leader is not reaped before its session is empty: until then no other can have its number.
            while alive := _alive(child):
                for pid in alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(_PAUSE)
            child.process.wait()
            if child.process.stdout is not None:
                child.process.stdout.close()
            self._children.remove(child)


def _alive(child: Child) -> list[int]:
    members = child.members()
    return members if members or child.ended else [child.process.pid]


def _session(leader: int) -> list[int]:
    """The living processes of a session, by Linux's /proc; elsewhere nothing is known of them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The program's name, in parentheses, may hold anything.
            state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(session) == leader and state not in "ZX":
            found.append(int(entry.name))
    return found
