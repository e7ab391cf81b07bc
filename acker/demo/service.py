"""The demo's dashboard: `acker serve` as one of its processes, which ticks the topology, too."""

import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from acker.demo.children import Child
from acker.errors import ValidationError

HOST = "127.0.0.1"
_PROGRAM = "from acker.cli import main; main()"
_ADDRESS, _TROUBLE = "http://", "acker: no dashboard"


def check_port(port: int) -> None:
    """Raises ValidationError where a port is taken; 0 stands for any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ValidationError(f"--port {port}: {error.strerror}") from error


class Service:
    """The running service. say: is called with its address, and with why there is no dashboard, once each.

    A dashboard that can't be built is no reason to fail: the rest of the service does without.
    """

    def __init__(
        self, log: Path, environment: Mapping[str, str], port: int, say: Callable[[str], None]
    ) -> None:
        command = [sys.executable, "-c", _PROGRAM, "serve", "--host", HOST, "--port", str(port)]
        # What ticks the demo's topology is this service, whatever the others tick.
        ticking = {**environment, "ACKER_TICKER": "true", "ACKER_HISTORY": "true"}
        self.child = Child("the service", command, log, environment=ticking)
        self.address = ""
        self._say = say
        self._troubled = False

    def look(self) -> None:
        """Tells what there is to tell by now. Raises ChildFailed where the service has ended."""
        self.child.check()
        if not self.address and (address := self.child.line(_ADDRESS)):
            self.address = address
            self._say(f"dashboard {address}")
        if not self._troubled and (trouble := self.child.line(_TROUBLE)):
            self._troubled = True
            self._say(trouble.removeprefix("acker: "))
