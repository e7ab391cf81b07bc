"""Where a subscription that reads fairly is: it has a cursor in each lane of its stream.

See lua/streams/includes/lanes.lua; which segments go into which lane, `acker.streams.log.fairness` says.
"""

from collections.abc import Mapping, Sequence

LAST_LANE = 3


def cursors(cursor: bytes | None, lanes: bytes | None) -> list[bytes]:
    """How far a subscription has read, in each lane, or, where it does not read fairly, in all together.

    cursor, lanes: as they are stored.
    """
    parts = (lanes or b"").split(b" ")[: LAST_LANE + 1]
    return parts if len(parts) == LAST_LANE + 1 else [cursor or b"0-0"]


def unread(entry: bytes, fields: Mapping[bytes, bytes], of: Sequence[bytes]) -> bool:
    """Whether nobody has taken an entry yet, where a subscription has these cursors."""
    if len(of) == 1:
        return _order(entry) > _order(of[0])
    lane = fields.get(b"lane", b"0")
    return _order(entry) > _order(of[min(LAST_LANE, int(lane) if lane.isdigit() else 0)])


def _order(entry: bytes) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in entry.split(b"-"))
