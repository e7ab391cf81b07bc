"""The options of a spout whose rows the store keeps: they choose its trees, and its attempts."""

from dataclasses import dataclass

from acker.errors import ValidationError, shown
from acker.ledger import ids
from acker.ledger.settings.config import check_name, check_spout
from acker.ledger.settings.settings import choice, flag, number, settings_of, text

LONGEST_BACKOFF = 86_400.0
MOST_ATTEMPTS = 1_000
BAD_MESSAGE_IDS = ("dead_letter", "untracked")


@dataclass(frozen=True, slots=True)
class SpoutOptions:
    """The options of a spout that keeps its rows. `OPTIONS` lists those with a default.

    Attributes:
        spout: The name of the spout.
        stream: The stream in which a replay of a row is published.
        message_id: The column with the spout's own name of a row (up to 1,024 bytes, as text).
        letters: True if a row becomes a dead letter after its last attempt; False if the caller takes its
            failures (`acker.drpc`).

    Raises:
        ValidationError: An option has a value that it does not take.
    """

    spout: str
    stream: str
    message_id: str
    attempts: int = number(3, 1, MOST_ATTEMPTS, "How often a row is tried until it is a dead letter.")
    attempt: str = text("", "column", "Adds the number of the attempt (int, from 1).")
    outcomes: bool = flag(False, "Whether outcomes are written to the stream `<spout>.outcomes`.")
    max_spout_pending: int | None = number(
        None, 1, 10**9, "Most rows of the spout that have no outcome; without, any number."
    )
    offset: str = text(
        "", "column", "A row's place in its source, a whole number from 0: for the watermark of what is done."
    )
    partition: str = text(
        "",
        "column",
        'In which part of its source that place is, as text; null is the part without a name, as `""`.',
    )
    bad_message_id: str = choice(
        BAD_MESSAGE_IDS, "What becomes of a row whose message id is null or over 1 KiB: it is a dead letter "
        "at once, or goes on without a tree."
    )  # fmt: skip
    backoff: float = number(
        0.0, 0.0, LONGEST_BACKOFF, "Seconds from the outcome of a row's first attempt to its second, doubled "
        "for each further one; it waits for half of that or more, at random."
    )  # fmt: skip
    max_backoff: float = number(300.0, 0.0, LONGEST_BACKOFF, "Seconds of the longest such wait.")
    line: str = text("", "name", "The line that each row is a request of (`acker.lines`).")
    group: int | None = number(
        None,
        1,
        ids.SLAB_TREES,
        "Most requests that go through a line together; without, as many as a slab has.",
    )
    letters: bool = True

    def __post_init__(self) -> None:
        check_spout(self.spout)
        check_name(outcomes_stream(self.spout), "spout, with .outcomes")
        check_name(self.stream, "stream")
        if not self.message_id:
            raise ValidationError(f"message_id: expected the name of a column, got {shown(self.message_id)}")
        if self.partition and not self.offset:
            raise ValidationError("partition: expected with offset, which is missing")
        if self.group is not None and not self.line:
            raise ValidationError("group: expected with line, which is missing")
        for name, one in OPTIONS.items():
            one.check(getattr(self, name), name)


OPTIONS = settings_of(SpoutOptions)
"""The options of a spout, in their order."""


def outcomes_stream(spout: str) -> str:
    """The name of the stream of a spout's outcomes."""
    return f"{spout}.outcomes"


def replays_stream(spout: str) -> str:
    """The name of the stream to which rows that were only tracked are replayed."""
    return f"{spout}.replays"
