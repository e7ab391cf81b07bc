"""A store with the users of deploy/acker.acl."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.helpers.servers.clusters import Cluster
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import CLUSTERS, binary

FILE = Path(__file__).parents[3] / "deploy" / "acker.acl"
ROLES = ("executor", "spout", "service", "reader", "receiver", "sender")


class Rights:
    """A store with the users of the file, each with the password `word`: one server, or masters of a cluster.

    operator: a client of the (first) server, which may do everything.
    """

    def __init__(self, ports: Sequence[int], operators: Sequence[Any]) -> None:
        self.ports = ports
        self.operator: Any = operators[0]
        self._operators = operators

    def url(self, role: str) -> str:
        scheme = "redis" if len(self.ports) == 1 else "redis+cluster"
        return f"{scheme}://acker-{role}:word@" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def denied(self) -> list[str]:
        """The commands that were refused so far."""
        found: list[dict[str, str]] = []
        for operator in self._operators:
            found += operator.acl_log()
        return [f"{entry['username']}: {entry['object']}" for entry in found]

    def __call__(self, role: str, *words: str) -> Any:
        """The answer of the (first) server to a command of a role."""
        with redis.Redis("127.0.0.1", self.ports[0], username=f"acker-{role}", password="word") as client:
            return client.execute_command(*words)


def _options(directory: Path) -> dict[str, str]:
    """Options of a server that knows the users."""
    file = directory / "users.acl"
    file.write_text(FILE.read_text().replace(" off ", " on >word "))
    return {"aclfile": str(file), "enable-debug-command": "yes"}


@contextmanager
def users(new_server: NewServer, kind: str, directory: Path) -> Iterator[Rights]:
    """A server that knows the users, or a cluster of three masters that do."""
    if kind in CLUSTERS:
        with cluster(kind, directory) as (_, rights):
            yield rights
        return
    server = new_server(kind, append_only=False, options=_options(directory))
    with redis.Redis.from_url(server.url) as operator:
        yield Rights([server.port], [operator])


@contextmanager
def cluster(kind: str, directory: Path) -> Iterator[tuple[Cluster, Rights]]:
    """A cluster of three masters that know the users."""
    program = binary(kind.removesuffix("-cluster"))
    options = _options(directory)
    with ExitStack() as stack:
        servers = stack.enter_context(
            Cluster(directory / "cluster", binary=program, replicas=False, patient=True, options=options)
        )
        operators = [stack.enter_context(servers.client(number)) for number in range(servers.masters)]
        yield servers, Rights([server.port for server in servers.servers], operators)
