"""Options of the work on a step.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a bundle is the rows that
have gathered for one task of a group; a group is requests of a line that were tracked together.
"""

from typing import TypedDict


class WorkOptions(TypedDict, total=False):
    """Options of the work on a step.

    All `async def` steps of a process share an event loop.

    Attributes:
        concurrency: Rows (in a gathering step: requests) of a worker that an `async def` step works on at a
            time: 1 to 10,000, default 64.
        timeout: Seconds after which a call of an `async def` step is cancelled, and its request fails: up to
            a day, default 60.
        fair_by: A column of its rows, or "_acker" for the request. The stream is then read fairly: writers of
            many rows do not delay others (`acker.streams.log.fairness`).
        max_bytes: Bytes of rows that a worker takes at a time: 1 to 2^40, default 64 MiB, and at most its
            part of the 256 MiB of all workers of a process (`acker.workers.room`). One segment, or bundle, is
            always taken.
    """

    concurrency: int | None
    timeout: float | None
    fair_by: str
    max_bytes: int
