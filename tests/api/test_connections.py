"""Connections that send nothing, or never an end, keep nobody out: of a service as a process."""

import json
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces import patient
from tests.helpers.faces.serve import running
from tests.helpers.faces.streams_of_events import connected
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

HALF = b"GET /api/v1/topologies HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
BODY = b"POST /api/v1/topologies/words/fail HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_what_is_no_http_is_answered_as_other_bad_requests_are(valkey_url: str) -> None:
    with (
        running("--url", valkey_url) as service,
        connected(service.address, b"\x00\r\n\r\n") as connection,
        connection.makefile("rb") as answer,
    ):
        head, _, body = answer.read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"x-content-type-options: nosniff" in head
        assert json.loads(body)["type"] == "urn:acker:bad-request"


CHUNKED = (
    b"POST /api/v1/topologies/words/fail HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
ENDLESS = b"a" * (100 << 10)
TOO_LARGE = {
    "line": b"GET /healthz?" + ENDLESS,
    "header": GET + b"X: " + ENDLESS,
    "many headers": GET + b"X: a\r\n" * 100 + b"\r\n",
    "second request": (GET + b"\r\n") * 3 + GET + b"X: " + ENDLESS,
    "chunk": CHUNKED + b"1;" + ENDLESS,
    "trailer": CHUNKED + b"1\r\n{\r\n0\r\nX: " + ENDLESS,
    "many trailers": CHUNKED + b"1\r\n{\r\n0\r\n" + b"X: a\r\n" * 100,
}


def test_a_head_has_a_bound_and_within_it_comes_as_it_likes(valkey_url: str) -> None:
    with running("--url", valkey_url) as service:
        for kind, sent in TOO_LARGE.items():
            answered = b""
            with suppress(ConnectionResetError), connected(service.address, sent) as connection:
                while more := connection.recv(65536):
                    answered += more
            if not sent.startswith(CHUNKED) and kind != "second request":
                assert answered.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"), kind
                assert b"urn:acker:head-too-large" in answered
        most = GET + b"X: " + b"a" * 30_000 + b"\r\n" + b"Y: 1\r\n" * 98 + b"\r\n"
        with connected(service.address, most * 5) as connection:
            answered = b""
            while answered.count(b"HTTP/1.1 200 OK") < 5:
                more = connection.recv(65536)
                assert more, answered[-300:]
                answered += more


def test_what_is_not_sent_in_time_is_ended(valkey_url: str) -> None:
    with (
        running("--url", valkey_url, ACKER_REQUEST_SECONDS="0.5") as service,
        connected(service.address, b"") as nothing,
        connected(service.address, HALF) as half,
        connected(service.address, BODY) as body,
        connected(service.address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF) as second,
    ):
        assert second.recv(12) == b"HTTP/1.1 200"
        second.settimeout(patient.SECONDS)
        while second.recv(4096):  # the rest of the first answer, and then its end
            pass
        assert all(map(is_closed, (nothing, half, body)))
        assert patient.get(f"{service.address}/healthz").status_code == 200


def test_a_client_has_so_many_connections_and_the_others_and_the_ticker_go_on(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "words", message_timeout=1.0, ackers=1)
    with (
        running("--url", valkey_url, ACKER_CONNECTIONS_OF_CLIENT="20") as service,
        ExitStack() as held,
    ):
        many = [held.enter_context(connected(service.address, HALF, "127.0.0.2")) for _ in range(25)]
        wait_until(lambda: sum(_refused(one) for one in many) == 5)
        assert patient.get(f"{service.address}/api/v1/topologies").status_code == 200
        Trees(5).track(ledger)
        wait_until(lambda: ledger.counters()["expired"] == 5)


def test_all_have_so_many_and_places_come_back(valkey_url: str) -> None:
    with (
        running("--url", valkey_url, ACKER_CONNECTIONS="10", ACKER_REQUEST_SECONDS="2") as service,
        ExitStack() as held,
    ):
        began = time.monotonic()
        for _ in range(10):
            held.enter_context(connected(service.address, HALF))
        wait_until(lambda: _answers(service.address))
        assert time.monotonic() - began >= 1, "there was room before any was ended"


def _refused(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def _answers(address: str) -> bool:
    with connected(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        try:
            return connection.recv(12) == b"HTTP/1.1 200"
        except ConnectionResetError:
            return False
