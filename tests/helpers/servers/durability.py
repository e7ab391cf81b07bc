"""A replica of a server, for tests of durability."""

import redis

from acker.embedded import EmbeddedServer
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until


def replica_of(new_server: NewServer, server: EmbeddedServer, kind: str) -> EmbeddedServer:
    """A replica that has all that its master has."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("repl-diskless-sync-delay", 0)  # or it waits for others to come
    replica = new_server(kind, append_only=False, options={"replicaof": f"127.0.0.1 {server.port}"})
    with redis.Redis.from_url(server.url) as master, redis.Redis.from_url(replica.url) as client:
        wait_until(lambda: client.role()[3] == b"connected", timeout=60)
        # Its master sends it nothing before it has heard that.
        master.set("sent", 1)
        master.delete("sent")
        wait_until(lambda: master.wait(1, 1000) == 1, timeout=60)
    return replica
