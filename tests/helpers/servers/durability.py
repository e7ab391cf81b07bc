"""A replica of a server, for tests of durability."""

import redis

from acker.embedded import EmbeddedServer
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until


def replica_of(new_server: NewServer, server: EmbeddedServer, kind: str) -> EmbeddedServer:
    """A replica that has all that its master has."""
    options = {"replicaof": f"127.0.0.1 {server.port}", "repl-diskless-sync-delay": "0"}
    replica = new_server(kind, append_only=False, options=options)
    with redis.Redis.from_url(replica.url) as client:
        wait_until(lambda: client.role()[3] == b"connected", timeout=60)
    return replica
