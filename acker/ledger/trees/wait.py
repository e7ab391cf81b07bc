"""A wait: the reason why the clock of a tree stands still.

The ledger keeps no waits. The layers above find them (`acker.streams.downtime`).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

from dataclasses import dataclass
from typing import Annotated

from acker.ledger.fields import Instant, instant


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason why the clock of a tree stands still, which is the clock of its slab."""

    waits_for: Annotated[str, "A subscription, a call, a commit, or a coordinator, for people."]
    since: Annotated[Instant | None, "Since its oldest row was published; null where that is not known."] = (
        None
    )
    until: Annotated[
        Instant | None,
        "It stands still until then at least, if nobody takes the rows before: no tree of the slab expires "
        "earlier. null where that is not known.",
    ] = None
    stream: Annotated[str, "The stream in which the rows lie; empty where it waits for something else."] = ""
    subscription: Annotated[str | None, "null for the first one of its stream, and where it has none."] = None

    def text(self) -> Annotated[str, "The wait, for people."]:
        """The wait, for people."""
        since = "" if self.since is None else f" since {instant(self.since)}"
        end = "" if self.until is None else f"; expires {instant(self.until)} at the earliest"
        return f"clock stands still: waits for {self.waits_for}{since}{end}"

    def merged(self, other: "Wait | None") -> "Wait":
        """This wait and another one of the same slab: the older one of them, until both are over."""
        if other is None:
            return self
        known = [one for one in (self, other) if one.since is not None]
        older = min(known, key=lambda one: one.since or 0.0) if known else self
        untils = [one.until for one in (self, other) if one.until is not None]
        return Wait(older.waits_for, older.since, max(untils, default=None), older.stream, older.subscription)
