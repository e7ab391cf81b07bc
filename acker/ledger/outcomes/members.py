"""Members of a spout: processes of a group that share its name, and take their own outcomes each.

In the store each member has a name of its own, by its place among them: `orders`, `orders.member-2`. So none
takes the outcomes of another. A member holds its place for a time, and a place that nobody holds goes to the
next process: names are few, whatever is restarted. People see the spout's name alone.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from acker.errors import SpoutsFull
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import scripts
from acker.ledger.outcomes.unread import confirm_unread
from acker.ledger.settings.config import member_name
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds, pairs

MOST_MEMBERS = 60
"""Most members of a spout at a time: a shard knows 128 names."""
SILENT = 60.0
"""Seconds of silence after which a member may lose its place where all are held."""
_KEPT = 30 * 86_400
"""Seconds for which the places of a spout without members are kept."""


@dataclass(slots=True)
class Membership:
    """The place of this process among the members of a spout.

    Attributes:
        spout: The name of the spout.
        ttl: Seconds for which the member holds its place after each `claim`.
        token: The name of the process.
        place: Its place, from 1 on; 0 before the first claim.
        run: The begin of the run, in milliseconds of the store's clock: since when there was a member at any
            time. A member that was killed counts until its place is free.
    """

    spout: str
    ttl: float
    token: str
    place: int = 0
    run: int = 0

    @classmethod
    def of(cls, spout: str, ttl: float) -> "Membership":
        """A new member without a place. Raises ValidationError for a name that is too long for members."""
        member_name(spout, MOST_MEMBERS)
        return cls(spout, ttl, secrets.token_hex(8))

    @property
    def name(self) -> str:
        """The name of the member in the store."""
        return member_name(self.spout, self.place)


def claim(core: Core, member: Membership) -> Operation[bool]:
    """Takes a place for a member, or keeps the one it has; returns True if it has not held it all the time.

    Others may have taken or confirmed its outcomes then, also if it has the same place again. It also
    confirms the outcomes of members that are gone, whose records come again from their source. Raises
    SpoutsFull if all places are held.
    """
    kept, gone = yield from _take_place(core, member)

    def is_gone(place: int) -> Operation[bool]:
        nonlocal kept
        still, now_gone = yield from _take_place(core, member)
        kept = kept and still
        return place in now_gone

    for place in gone:
        yield from confirm_unread(core, member_name(member.spout, place), partial(is_gone, place))
    return not kept


def _take_place(core: Core, member: Membership) -> Operation[tuple[bool, list[int]]]:
    """Notes the place that the store gives; returns whether it was kept all the time, and the places gone."""
    [(place, run, kept, *gone)] = yield [_request(core, member, member.ttl)]
    if not place:
        raise SpoutsFull(
            f"spout {member.spout!r} has {MOST_MEMBERS} members, its most: give further processes another "
            "spout name"
        )
    member.place, member.run = int(place), int(run)
    return bool(kept), [int(other) for other in gone]


def leave(core: Core, member: Membership) -> Operation[None]:
    """Gives the place of a member back, unless another process has it by now."""
    if member.place:
        yield [_request(core, member, 0.0)]


def confirm_gone(core: Core, spout: str, names: Iterable[str]) -> Operation[None]:
    """Confirms the outcomes of members that are gone, so that a spout without processes can be removed.

    Nothing happens to a spout that never had members.

    Args:
        core: The ledger.
        spout: The spout.
        names: The names of its members in the store.
    """
    held, noted = keys.Spout(core.config.name, spout).members, keys.reached(core.config.name)
    if not any((yield [command("EXISTS", held), command("HEXISTS", noted, f"s:{spout}")])):
        return

    def is_gone(name: str) -> Operation[bool]:
        [stored, instant] = yield [command("HGETALL", held), Request(held, ["TIME"])]
        now = milliseconds(instant)
        return all(
            member_name(spout, int(place)) != name or int(holder.rpartition(b" ")[2]) <= now
            for place, holder in pairs(stored).items()
            if place.isdigit()
        )

    for name in names:
        yield from confirm_unread(core, name, partial(is_gone, name))


def _request(core: Core, member: Membership, ttl: float) -> Request:
    return scripts.claim_member(
        core.config, member.spout, member.token, member.place, MOST_MEMBERS, ttl, SILENT, _KEPT, member.run
    )
