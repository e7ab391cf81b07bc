"""Lanes: the cursors of a subscription that reads fairly, one in each lane of its stream.

See lua/streams/includes/lanes.lua. `acker.streams.log.fairness` chooses the lane of a segment.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Mapping, Sequence

LAST_LANE = 3


def cursors(cursor: bytes | None, lanes: bytes | None) -> list[bytes]:
    """The cursors of a subscription, one for each lane; or a single one, if it does not read fairly.

    cursor, lanes: the stored fields.
    """
    parts = (lanes or b"").split(b" ")[: LAST_LANE + 1]
    return parts if len(parts) == LAST_LANE + 1 else [cursor or b"0-0"]


def unread(entry: bytes, fields: Mapping[bytes, bytes], of: Sequence[bytes]) -> bool:
    """Return True if no reader of a subscription with these cursors has taken an entry yet."""
    if len(of) == 1:
        return _order(entry) > _order(of[0])
    lane = fields.get(b"lane", b"0")
    return _order(entry) > _order(of[min(LAST_LANE, int(lane) if lane.isdigit() else 0)])


def _order(entry: bytes) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in entry.split(b"-"))
