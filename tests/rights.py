"""A server with the users of deploy/acker.acl."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.conftest import NewServer

FILE = Path(__file__).parent.parent / "deploy" / "acker.acl"
ROLES = ("executor", "spout", "service", "reader")


class Rights:
    """A server with the users of the file, each with the password `word`."""

    def __init__(self, port: int, operator: Any) -> None:
        self.port = port
        self.operator = operator

    def url(self, role: str) -> str:
        return f"redis://acker-{role}:word@127.0.0.1:{self.port}/0"

    def denied(self) -> list[str]:
        """What was refused so far."""
        found = self.operator.execute_command("ACL", "LOG")
        return [f"{entry['username']}: {entry['object']}" for entry in found]

    def __call__(self, role: str, *words: str) -> Any:
        with redis.Redis.from_url(self.url(role)) as client:
            return client.execute_command(*words)


@contextmanager
def users(new_server: NewServer, kind: str, directory: Path) -> Iterator[Rights]:
    """A server that knows the users, each with the password `word`."""
    file = directory / "users.acl"
    file.write_text(FILE.read_text().replace(" off ", " on >word "))
    options = {"aclfile": str(file), "enable-debug-command": "yes"}
    server = new_server(kind, append_only=False, options=options)
    with redis.Redis.from_url(server.url) as operator:
        yield Rights(server.port, operator)
