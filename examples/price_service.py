"""A price service for the example of scheduled orders: it fails now and then, and notes what it is asked."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PRICES = {"tea": 350, "cup": 1200}
"""Thing -> its price in cents."""


class Service(ThreadingHTTPServer):
    """Knows no unicorns, fails the first call for some lines, and refuses some orders until it is well.

    It notes each call in `calls`, a file of JSON lines, with what was going on meanwhile (`phase`).
    """

    def __init__(self, calls: Path) -> None:
        super().__init__(("127.0.0.1", 0), Prices)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.calls, self.phase, self.well = calls, "killed", False
        self.seen: Counter[tuple[str, int]] = Counter()
        self.lock = threading.Lock()
        self.calls.touch()

    def answer(self, sku: str, order: str, line: int) -> int:
        """The status for a call."""
        with self.lock:
            self.seen[order, line] += 1
            number = int(order[1:])
            status = 200 if sku in PRICES else 404
            if number % 7 == 0 and self.seen[order, line] == 1:
                status = 500
            if number % 31 == 0 and not self.well:
                status = 503
            call = {"order": order, "line": line, "status": status, "phase": self.phase}
            with self.calls.open("a") as file:
                file.write(json.dumps(call) + "\n")
        return status

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: a job that is killed hangs up."""


class Prices(BaseHTTPRequestHandler):
    """One connection to the service."""

    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        """GET /SKU?order=ID&line=NUMBER."""
        url = urlsplit(self.path)
        sku, asked = url.path.removeprefix("/"), parse_qs(url.query)
        status = self.server.answer(sku, asked["order"][0], int(asked["line"][0]))
        time.sleep(0.05)  # services take their time
        body = json.dumps(PRICES.get(sku)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing: the service notes its calls itself."""
