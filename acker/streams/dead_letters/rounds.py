"""Replays or discards all dead letters of a filter, in rounds.

A spout has at most 100,000 dead letters. Rows that fail beyond that wait, with their outcomes, until some
letters are gone. A round replays or discards the existing letters; then the waiting outcomes are settled, and
the next round begins. Rows that end after the first round was begun are left alone. So there is an end, even
if all replayed rows fail again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from acker.errors import AckerError, StoreUnavailable
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store.operation import Operation
from acker.streams.dead_letters import dead_letters, pages
from acker.streams.dead_letters.dead_letters import OTHERS, Discarded, Replayed
from acker.streams.dead_letters.filters import Filter
from acker.streams.sources import kept_rows
from acker.streams.spouts import settler

Page: TypeAlias = Replayed | Discarded
Step: TypeAlias = Callable[..., Operation[Page]]
"""`dead_letters.replay_some` or `discard_some`."""

_PAUSE = 0.1
_IDLE = 2.0
"""Seconds for which outcomes may wait for another settler, or letters for another replay."""
_LOOK = 1_000
"""Most readings of waiting outcomes, up to 100 entries of each shard a reading, that are counted."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """Rows that are left.

    Attributes:
        count: Their number; at least so many, if `more` is True.
        more: True if not all were counted.
        why: The reason why they are held up, or "".
    """

    count: int = 0
    more: bool = False
    why: str = ""


class Rounds:
    """Replays or discards all dead letters of a filter.

    Iterate it: each item is a page that was done. Stop between any two pages, and ask `remaining` for the
    rows that are left.

    Args:
        ledger: The ledger of the topology.
        asked: The filter.
        step: `dead_letters.replay_some` or `dead_letters.discard_some`.
        wait: Seconds to wait for room, each time that there is none.

    Attributes:
        why: The reason why the remaining rows are held up, or "".
    """

    def __init__(self, ledger: Ledger, asked: Filter, step: Step, wait: float = 0.0) -> None:
        self._ledger, self._step, self._wait = ledger, step, wait
        position = ledger.run(pages.start(ledger.core, asked, None))
        self._asked = replace(asked, ended_until=position.until / 1000)
        self._refused = 0
        self.why = ""

    def __iter__(self) -> Iterator[Page]:
        idle = 0.0
        while True:
            # Before the round: if nothing waits then, all rows are letters that the round finds.
            waiting = self._ledger.run(_waiting(self._ledger.core, self._asked, 1)).count
            moved = 0
            for page in self._round():
                moved += page.count
                yield page
            if self.why or not waiting:
                return
            settled, why = self._settle()
            if moved or settled:
                idle = 0.0
            elif why or idle >= _IDLE:
                self.why = why or "they wait for the process that handles the outcomes of their spout"
                return
            else:
                time.sleep(_PAUSE)
                idle += _PAUSE

    def remaining(self) -> Remaining:
        """Returns the number of remaining rows, and the reason."""
        core = self._ledger.core
        waiting = self._ledger.run(_waiting(core, self._asked, None))
        left, cursor = -self._refused, None
        while True:
            page = self._ledger.run(dead_letters.groups(core, self._asked, by=("status",), cursor=cursor))
            left += sum(one.count for one in page.groups)
            if (cursor := page.cursor) is None:
                break
        return Remaining(max(0, left) + waiting.count, waiting.more, self.why)

    def _round(self) -> Iterator[Page]:
        """A pass over the existing letters."""
        cursor, idle, self._refused = None, 0.0, 0
        while True:
            page = self._ledger.run(self._step(self._ledger.core, self._asked, cursor=cursor))
            self._refused += len(page.refused) if isinstance(page, Replayed) else 0
            yield page
            cursor = page.cursor
            if cursor is None:
                return
            waits = page.waits if isinstance(page, Replayed) else ""
            if not waits:
                idle = 0.0
                continue
            idle = 0.0 if page.count else idle + _PAUSE
            if idle >= (max(self._wait, _IDLE) if waits == OTHERS else self._wait):
                self.why = waits
                return
            self._settle()  # settled outcomes make room
            time.sleep(_PAUSE)

    def _settle(self) -> tuple[int, str]:
        """Settles outcomes; returns the number of rows, and the reason why others could not be settled."""
        try:
            return settler.settle(self._ledger).all, ""
        except StoreUnavailable:
            raise
        except AckerError as error:  # of one spout: the others are settled
            return 0, str(error)


def _waiting(core: Core, asked: Filter, most: int | None) -> Operation[Remaining]:
    """Rows whose outcomes wait to become dead letters of a filter, as far as that is known before.

    most: the count at which it ends; None counts all, up to a bound.
    """
    names = [asked.spout] if asked.spout is not None else sorted(core.spouts)
    count = 0
    for name in names:
        reader = OutcomeReader(core, name)
        for _ in range(_LOOK):
            entries = yield from reader.read()
            if not entries:
                break
            places = yield from kept_rows.kept_slabs(core, name, kept_rows.slabs_of(entries))
            early = [one for one in entries if asked.ended_until is None or one.at <= asked.ended_until]
            count += sum(
                len(places[outcome.slab].rows(outcome))
                for entry in early
                for outcome in entry.slabs
                if outcome.slab in places and places[outcome.slab].buries(entry, outcome)
            )
            if most is not None and count >= most:
                return Remaining(count, True)
        else:
            return Remaining(count, True)
    return Remaining(count)
