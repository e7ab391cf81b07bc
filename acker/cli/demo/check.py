"""Checks the demo's result: the sink against a count of the same text that knows nothing of acker.

Nothing of what is checked is asked for what it should be: the text is read again, split again, and which
records should have failed follows from the text, too.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from acker.cli.demo.options import Faults
from acker.cli.demo.records import Status
from acker.cli.demo.sink import Sink
from acker.cli.demo.text import Line, words
from acker.streams.dead_letters.dead_letters import DeadLetter

SHOWN = 10
"""Most examples of one kind of difference."""


@dataclass(slots=True)
class Check:
    """A comparison, and all that differs. problems: one line for each kind; none: all is well."""

    lines: int = 0
    words: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if nothing differs."""
        return not self.problems

    def differ(self, fault: str, records: Collection[str]) -> None:
        """Notes what is wrong with records, where there are any."""
        if records:
            shown = sorted(records)[:SHOWN]
            self.problems.append(f"{len(records):,} {fault}: {', '.join(shown)}")


def check(
    lines: Iterable[Line],
    sink: Sink,
    dead: Iterable[DeadLetter],
    status: Status,
    counters: Mapping[str, int],
    faults: Faults,
    attempts: int,
) -> Check:
    """Compares sink, dead letters, the spout's counts and the ledger's with the text.

    A dead letter whose last tree was failed can have left nothing in the sink; one whose last tree expired
    may have left some of its words, which are not looked at.
    """
    result = Check()
    given_up = Counter(letter.message_id.decode() for letter in dead)
    failed = {letter.message_id.decode() for letter in dead if letter.status == "failed"}
    expected: dict[str, str] = {}
    poisoned: set[str] = set()
    failures = 0
    for line in lines:
        result.lines += 1
        line_words = words(line.text)
        failures += faults.failures(line.message_id, line_words, attempts)
        if line_words and faults.poisoned(line.message_id):
            poisoned.add(line.message_id)
        if line.message_id not in given_up:
            expected[line.message_id] = " ".join(line_words)
            result.words += len(line_words)
    _compare_sink(result, expected, sink, given_up.keys() - failed, failed)
    _compare_outcomes(result, status, counters, len(given_up))
    result.differ("records were given up twice", [name for name, count in given_up.items() if count > 1])
    result.differ("records always fail, and were not given up", poisoned - given_up.keys())
    result.differ("records were given up, and should not have failed", failed - poisoned)
    if not status.expired and status.failed != failures:
        result.problems.append(f"{status.failed:,} trees failed, {failures:,} should have")
    return result


def _compare_sink(
    result: Check, expected: Mapping[str, str], sink: Sink, expired: Collection[str], failed: Collection[str]
) -> None:
    missing = {name for name, text in expected.items() if text}
    wrong, strange, given_up = list[str](), list[str](), list[str]()
    for message_id, placed in sink.records():
        missing.discard(message_id)
        text = " ".join(word for _, word in placed)
        gapless = [position for position, _ in placed] == list(range(len(placed)))
        if message_id in failed:
            given_up.append(message_id)
        elif message_id in expired:
            continue
        elif message_id not in expected:
            strange.append(message_id)
        elif text != expected[message_id] or not gapless:
            wrong.append(f"{message_id} (sink {text!r}, text {expected[message_id]!r})")
    result.differ("lines are missing in the sink", missing)
    result.differ("lines have other words in the sink", wrong)
    result.differ("lines in the sink are not in the text", strange)
    result.differ("lines in the sink were given up", given_up)


def _compare_outcomes(result: Check, status: Status, counters: Mapping[str, int], letters: int) -> None:
    outcomes = status.acked + status.failed + status.expired
    pairs = [
        (status.lines, result.lines, "the spout emitted {:,} lines, the text has {:,}"),
        (status.lines, status.acked + status.dead, "of {:,} lines {:,} have a final outcome"),
        (status.trees, outcomes, "{:,} trees have {:,} outcomes"),
        (status.dead, letters, "{:,} records were given up, {:,} dead letters can be read"),
        (status.trees, counters["tracked"], "tracked: the spout counts {:,}, the ledger {:,}"),
    ]
    pairs += [
        (getattr(status, name), counters[name], name + ": the spout counts {:,}, the ledger {:,}")
        for name in ("acked", "failed", "expired")
    ]
    result.problems += [text.format(one, other) for one, other, text in pairs if one != other]
    if status.unknown:
        result.problems.append(
            f"{status.unknown:,} outcomes came twice, or of records that the spout does not know"
        )
