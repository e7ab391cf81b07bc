"""A client of a stream of events, for tests."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.helpers.faces import patient


@contextmanager
def connected(address: str, sent: bytes, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    where = urlsplit(address)
    with socket.create_connection(
        (where.hostname or "", where.port or 0), timeout=patient.SECONDS, source_address=(source, 0)
    ) as connection:
        connection.sendall(sent)
        yield connection
