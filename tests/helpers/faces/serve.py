"""Processes of `acker serve`, for tests."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLI = [sys.executable, "-c", "from acker.cli import main; main()"]


@dataclass
class Running:
    """An `acker serve` at `address`, which logs to `log`."""

    address: str
    process: "subprocess.Popen[str]"
    log: Path

    def end(self, by: signal.Signals) -> int:
        """Asks it to end; its status."""
        self.process.send_signal(by)
        return self.process.wait(60)


@contextmanager
def running(*arguments: str, stderr: int | None = None, **environment: str) -> Iterator[Running]:
    """`acker serve` on a free port. stderr: where its log goes to in place of a file."""
    with (
        tempfile.NamedTemporaryFile(suffix=".log") as log,
        subprocess.Popen(
            [*CLI, "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr or log,
            text=True,
            env={**os.environ, **environment},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith(("http://", "https://")), Path(log.name).read_text()
            yield Running(address, process, Path(log.name))
        finally:
            process.kill()
