"""The scripts of calls and answers as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store.function_keys import Function
from acker.store.keys import Stream
from acker.store.operation import Request, script

MOST_ANSWERS = 10_000
"""Requests that were answered last, of which callers learn at once; of others within a second."""


def call(config: TopologyConfig, own: Function, request: str, caller: str, time: int, most: int) -> Request:
    """Begins a call."""
    keys = [own.calls, own.deadlines, own.answer(request)]
    return script("call", keys, [request, caller, time, most], config.wait)


def own_calls(own: Function, caller: str, requests: Sequence[str]) -> Request:
    """Whether calls are a caller's still."""
    return script("own_calls", [own.calls], [caller, *requests])


def withdraw_calls(
    config: TopologyConfig, own: Function, caller: str, forget: bool, requests: Sequence[str]
) -> Request:
    """Takes calls from their caller, or forgets them."""
    keys = [own.calls, own.deadlines]
    return script("withdraw_calls", keys, [caller, int(forget), *requests], config.wait)


def answer(
    config: TopologyConfig,
    own: Function,
    request: str,
    anchor: str,
    answer: str,
    cause: str,
    ttl: int,
    without: tuple[str, str],
    sure: bool,
) -> Request:
    """Answers a request. without: the answers where there is no result, or where there are two."""
    keys = [own.calls, own.deadlines, own.answers, own.answer(request), own.result(anchor), own.counted]
    return script(
        "answer", keys, [request, answer, ttl, MOST_ANSWERS, *without, cause, int(sure)], config.wait
    )


def check_version(stream: Stream, version: str) -> Request:
    """Tells whether the steps that read a stream are of a version of their function."""
    return script("check_version", [stream.subscriptions], [version])


def set_version(stream: Stream, version: str, before: bytes) -> Request:
    """Notes of which version of a function the steps are that read a stream. before: the one found there."""
    return script("set_version", [stream.subscriptions], [version, before])
