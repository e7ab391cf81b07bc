"""The log as a handler; what the service writes is tested in test_serve.py."""

import asyncio
import logging
import os
import re
from collections.abc import Iterator

import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.asgi.logs import LINES, Lines, Requests
from tests.helpers.servers.servers import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def line(number: int) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, f"line {number} {'x' * 1000}", None, None)


def test_what_nobody_reads_is_dropped_and_counted(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    handler = Lines(writable)
    sent = LINES + 500
    for number in range(sent):
        handler.handle(line(number))
    os.set_blocking(readable, False)
    text = b""

    def all_is_reported() -> bool:
        nonlocal sent, text
        try:
            text += os.read(readable, 1 << 20)
        except BlockingIOError:
            handler.handle(line(sent))
            sent += 1
        dropped = [
            int(count) for count in re.findall(rb"^([0-9]+) lines of the log were", text, re.MULTILINE)
        ]
        assert sum(dropped) <= sent
        return sum(dropped) > 0 and text.count(b"line ") + sum(dropped) == sent

    wait_until(all_is_reported)
    numbers = [int(number) for number in re.findall(rb"^line ([0-9]+) ", text, re.MULTILINE)]
    assert numbers == sorted(set(numbers))
    handler.close()


def test_at_the_end_all_lines_are_written(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    handler = Lines(writable)
    for number in range(50):
        handler.handle(line(number))
    handler.close()
    assert os.read(readable, 1 << 16).count(b"line ") == 50


async def listening(_scope: Scope, receive: Receive, _send: Send) -> None:
    """Ends without an answer when its client leaves, as starlette ends the answer of a file."""
    assert (await receive())["type"] == "http.disconnect"


async def cancelled(scope: Scope, receive: Receive, send: Send) -> None:
    raise asyncio.CancelledError


async def failing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise OSError("the disk is gone")


def test_a_client_that_leaves_before_its_answer_is_no_error_of_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def waits() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def get(app: ASGIApp, receive: Receive) -> None:
        async def send(_message: Message) -> None:
            await asyncio.sleep(0)

        scope: Scope = {"type": "http", "method": "GET", "path": "/index.js", "headers": []}
        await Requests(app)(scope, receive, send)

    caplog.set_level(logging.DEBUG, "api.requests")
    asyncio.run(get(listening, gone))
    asyncio.run(get(Response("x"), waits))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(get(cancelled, waits))
    with pytest.raises(OSError, match="disk"):
        asyncio.run(get(failing, gone))
    told = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "api.requests"]
    assert told == [
        ("DEBUG", "GET '/index.js' 499"), ("DEBUG", "GET '/index.js' 200"),
        ("WARNING", "GET '/index.js' 500"), ("WARNING", "GET '/index.js' 500"),
    ]  # fmt: skip
