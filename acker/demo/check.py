"""Checks the demo's result: the sink against a count of the same text that knows nothing of acker.

Nothing of what is checked is asked for what it should be: the text is read again, split again, and which
records should have failed follows from the text, too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from acker.demo.faults import Faults
from acker.demo.records import Status
from acker.demo.sink import Sink
from acker.demo.text import Line, words
from acker.streams.spouts.dead_letters import DeadLetter

SHOWN = 10
"""Most examples of one kind of difference."""


@dataclass(slots=True)
class Check:
    """What was compared, and all that differs. problems: one line for each kind; none: all is well."""

    lines: int = 0
    words: int = 0
    most_frequent: list[tuple[str, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.problems

    def differ(self, what: str, examples: Iterable[object] = ()) -> None:
        """Notes a difference."""
        shown = [str(example) for example in islice(examples, SHOWN)]
        self.problems.append(f"{what}: {', '.join(shown)}" if shown else what)


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
    letters: dict[str, DeadLetter] = {}
    for letter in dead:
        message_id = letter.message_id.decode()
        if message_id in letters:
            result.differ("a record was given up twice", [message_id])
        letters[message_id] = letter
    expected: dict[str, str] = {}
    frequent: Counter[str] = Counter()
    poisoned: set[str] = set()
    failures = 0
    for line in lines:
        result.lines += 1
        found = words(line.text)
        failures += faults.failures(line.message_id, found, attempts)
        if found and faults.poisoned(line.message_id):
            poisoned.add(line.message_id)
        if line.message_id not in letters:
            expected[line.message_id] = " ".join(found)
            frequent.update(found)
    result.words = frequent.total()
    result.most_frequent = sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:10]
    _compare_sink(result, expected, sink, letters)
    _compare_outcomes(result, status, counters, letters)
    if survived := sorted(poisoned - letters.keys()):
        result.differ(f"{len(survived):,} records always fail, and were not given up", survived)
    unexplained = sorted(
        name for name, one in letters.items() if one.status == "failed" and name not in poisoned
    )
    if unexplained:
        result.differ(f"{len(unexplained):,} records were given up, and should not have failed", unexplained)
    if not status.expired and status.failed != failures:
        result.differ(f"{status.failed:,} trees failed, {failures:,} should have")
    return result


def _compare_sink(
    result: Check, expected: dict[str, str], sink: Sink, letters: Mapping[str, DeadLetter]
) -> None:
    lost = {name for name, text in expected.items() if text}
    wrong, strange, given_up = list[str](), list[str](), list[str]()
    for message_id, found in sink.records():
        lost.discard(message_id)
        text = " ".join(word for _, word in found)
        gapless = [position for position, _ in found] == list(range(len(found)))
        if message_id in letters:
            if letters[message_id].status == "failed":
                given_up.append(message_id)
        elif message_id not in expected:
            strange.append(message_id)
        elif text != expected[message_id] or not gapless:
            wrong.append(f"{message_id} (sink {text!r}, text {expected[message_id]!r})")
    if lost:
        result.differ(f"{len(lost):,} lines are missing in the sink", sorted(lost))
    if wrong:
        result.differ(f"{len(wrong):,} lines have other words in the sink", wrong)
    if strange:
        result.differ(f"{len(strange):,} lines in the sink are not in the text", strange)
    if given_up:
        result.differ(f"{len(given_up):,} lines in the sink were given up", given_up)


def _compare_outcomes(
    result: Check, status: Status, counters: Mapping[str, int], letters: Mapping[str, DeadLetter]
) -> None:
    if not status.finished:
        result.differ("the spout has not finished")
    if status.lines != result.lines:
        result.differ(f"the spout emitted {status.lines:,} lines, the text has {result.lines:,}")
    if status.unknown:
        result.differ(f"{status.unknown:,} outcomes came twice, or of records that the spout does not know")
    if missing := status.lines - status.acked - status.dead:
        result.differ(f"{missing:,} lines have no final outcome")
    outcomes = status.acked + status.failed + status.expired
    if outcomes != status.trees:
        result.differ(f"{status.trees:,} trees have {outcomes:,} outcomes")
    if status.dead != len(letters):
        result.differ(f"{status.dead:,} records were given up, {len(letters):,} dead letters can be read")
    own = {"tracked": status.trees, "acked": status.acked, "failed": status.failed, "expired": status.expired}
    for name, count in own.items():
        if count != counters[name]:
            result.differ(f"{name}: the spout counts {count:,}, the ledger {counters[name]:,}")
