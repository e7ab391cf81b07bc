"""Options of the work on a step."""

from typing import TypedDict


class WorkOptions(TypedDict, total=False):
    """How a step is worked on.

    concurrency, timeout: of a step that is `async def`. So many of its rows that a worker has taken (of one
    that gathers: requests) are under way at a time, 1 to 10,000, default 64; one that takes longer than
    `timeout` seconds (up to a day, default 60) is cancelled, and its request fails. All such steps of a
    process share an event loop.
    fair_by: a column of its rows, "_acker" for the request. The stream is read fairly then: who has written
    many rows keeps nobody else waiting (`acker.streams.log.fairness`).
    max_bytes: bytes of rows that a worker takes at a time, 1 to 2^40, default 64 MiB; at most its part of the
    256 MiB that all workers of a process have (`acker.workers.room`). One segment, or bundle, is always
    taken.
    """

    concurrency: int | None
    timeout: float | None
    fair_by: str
    max_bytes: int
