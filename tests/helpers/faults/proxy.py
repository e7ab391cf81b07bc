"""A TCP proxy between a client and a server that cuts, holds back and repeats what passes through it."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class Proxy:
    """Forwards connections to `url`; `self.url` is its own address.

    What it does to the traffic is set by changing these, at any time:
      swallow    called with each request that is answered; when true the reply is dropped and the
                 connection cut: the server has done the request, and the client never hears of it
      record     whether requests are kept in `requests`
      refuse     whether new connections are closed at once; `refused` counts them
      passed     called with the connection and each piece of a request before it is passed on, which may
                 take its time
    """

    def __init__(self, url: str) -> None:
        self.lead(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.swallow: Callable[[bytes], bool] = lambda _: False
        self.record = False
        self.refuse = False
        self.refused = 0
        self.refused_one = threading.Event()
        self.passed: Callable[[socket.socket, bytes], None] = lambda *_: None
        self.cuts = 0
        self.requests: list[bytes] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._asked: dict[socket.socket, bytes] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuse:
                    self._refuse(client)
                    continue
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pairs.append((client, server))
                if self._refuses():  # since a moment: `cut_all` may have missed this pair
                    self._refuse(client, server)
                    continue
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._replies, args=(client, server), daemon=True).start()

    def _refuses(self) -> bool:
        return self.refuse

    def _refuse(self, *ends: socket.socket) -> None:
        self._cut(*ends)
        self.refused += 1
        self.refused_one.set()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self.record:
                    self.requests.append(data)
                self._asked[server] = self._asked.get(server, b"") + data
                self.passed(client, data)
                server.sendall(data)
        self._asked.pop(server, None)
        self._cut(client, server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if self.swallow(self._asked.pop(server, b"")):
                    self.cuts += 1
                    break
                client.sendall(data)
        self._cut(client, server)

    @staticmethod
    def _cut(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def lead(self, url: str) -> None:
        """Leads new connections to another server, as a name or a balancer does after a failover."""
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 6379)

    def cut_all(self) -> int:
        """Cuts every connection there is; returns how many."""
        pairs, self._pairs = self._pairs, []
        open_ones = sum(client.fileno() >= 0 for client, _ in pairs)
        for pair in pairs:
            self._cut(*pair)
        return open_ones

    def deliver(self, requests: list[bytes]) -> None:
        """Sends recorded requests again, as a connection of long ago whose bytes arrive only now."""
        with socket.create_connection(self._server) as late:
            for data in requests:
                late.sendall(data)
            late.sendall(b"*1\r\n$4\r\nPING\r\n")
            heard = b""
            while not heard.endswith(b"+PONG\r\n"):
                heard += late.recv(1 << 20)

    def close(self) -> None:
        """Ends the proxy and its connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """A proxy in front of the server at `url`."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def every_call_once() -> Callable[[bytes], bool]:
    """For `swallow`: loses the reply of each script call the first time that it is sent."""
    seen: set[bytes] = set()
    lock = threading.Lock()

    def swallow(request: bytes) -> bool:
        with lock:
            new = b"EVALSHA" in request and request not in seen
            seen.add(request)
            return new

    return swallow


@contextmanager
def silent(proxy: Proxy) -> Iterator[threading.Event]:
    """A store that takes connections and requests, and never answers. The event tells that it was asked."""
    over, asked = threading.Event(), threading.Event()

    def hold(_: socket.socket, __: bytes) -> None:
        asked.set()
        over.wait()

    proxy.passed = hold
    try:
        yield asked
    finally:
        over.set()


@contextmanager
def refusing(proxy: Proxy) -> Iterator[threading.Event]:
    """A store that ends its connections, and takes no more. The event tells that it has refused one."""
    asked = threading.Event()
    proxy.refused_one, proxy.refuse = asked, True
    proxy.cut_all()
    yield asked
