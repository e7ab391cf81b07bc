"""`acker demo` as a process, and a text for it."""

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from acker.cli.demo.text import Line

TEXT = [Line("f:1", "to be"), Line("f:2", "or not"), Line("f:3", "++"), Line("f:4", "to be")]
PROGRAM = "from acker.cli import main; main()"


class Run:
    """`acker demo` as a process. All processes that it starts are known by a variable of its environment."""

    command: tuple[str, ...] = (sys.executable, "-c", PROGRAM, "demo")

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.mark = f"ACKER_TEST_RUN={uuid.uuid4()}"
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.errors = directory / "stderr"
        name, value = self.mark.split("=")
        environment = {**os.environ, name: value, "TMPDIR": str(self.temporary)}
        environment.pop("ACKER_URL", None)
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*self.command, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )

    def said(self, pattern: str) -> str:
        """The line in which it has reported this, or ""; fails where it has ended without."""
        ended, text = self.process.poll() is not None, self.errors.read_text()
        found = re.search(f"^.*{pattern}.*\n", text, re.M)
        assert found or not ended, text
        return found[0] if found else ""

    def processes(self) -> list[str]:
        """The command lines of all that lives of it."""
        command_lines = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                if self.mark.encode() in environment:
                    command_lines.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return command_lines

    def result(self) -> dict[str, object]:
        """Its object, when it has ended."""
        out, _ = self.process.communicate()
        assert out, self.errors.read_text()
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    def report(self, file: Path) -> dict[str, Any]:
        """The report in its file, when it has ended without an error."""
        try:
            table, _ = self.process.communicate()
            assert self.process.returncode == 0, table + self.errors.read_text()
        finally:
            self.close()
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def assert_nothing_is_left(self) -> None:
        """Fails where a process or a temporary file is left."""
        assert self.processes() == []
        assert list(self.temporary.iterdir()) == []

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
