"""What tests share with tests/streams/commits/test_paused_drivers.py."""

from typing import Any

from acker.store.operation import Operation, Request


def one_by_one(operation: Operation[Any]) -> Operation[Any]:
    """The operation, with one request in each of its exchanges."""
    replies = None
    while True:
        try:
            asked: list[Request] = operation.send(replies)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value
        replies = []
        for request in asked:
            replies += yield [request]
