"""Spouts whose source keeps their records note how far they are, and `acker complete` goes by these notes."""

import numpy as np

from acker.inspect.locate import completion as gates
from acker.inspect.operate.removal import remove_spout
from acker.kafka.partitions import Assigned
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import pairs
from acker.streams.sources import reached
from acker.streams.sources.reached import Position
from tests.helpers.builders.gates import begin, look, mark, now
from tests.helpers.builders.streaming import after_each


def test_positions_of_a_source_count_by_partition_and_survive_their_spout(ledger: Ledger) -> None:
    def note(spout: str, done: int, upto: int, known: dict[int, int], begins: bool = False) -> None:
        one = Position("group/topic/0", "id", begins, done, upto, known)
        ledger.run(reached.note(ledger.core, spout, [one]))

    begin(ledger)
    ledger.run(ledger.core.register_spout("k"))
    note("k", 0, 10, {})
    first = mark(ledger)
    note("k", 4, 25, {10: 6})
    second = mark(ledger)
    assert (look(ledger, first).records, look(ledger, second).records) == (6, 21)
    assert look(ledger, first).places == (gates.OpenPlace("spout k", 6),)
    note("k2", 10, 25, {10: 0, 25: 9})  # another member goes on; it reads them again, in trees of its own
    assert (look(ledger, first).state, look(ledger, second).records) == ("complete", 9)
    note("k2", 0, 25, {})  # an offset never goes back
    assert look(ledger, first).state == "complete"
    note("k2", 0, 3, {}, begins=True)  # but for a topic that was made anew: its records are gone
    assert (look(ledger, second).state, look(ledger, mark(ledger)).records) == ("complete", 3)
    for number in range(
        200
    ):  # notes are bounded: what was first tracked later counts as earlier, never later
        note("k2", 0, 4 + number, {})
    stored = ledger.store.send([Request(keys.reached("t"), ["HGET", keys.reached("t"), "p:group/topic/0"])])
    assert len(stored[0].split()) == 3 + 3 * 64
    assert look(ledger, mark(ledger)).records == 203
    ledger.run(ledger.core.register_spout("k2"))
    ledger.run(remove_spout(ledger.core, "k2"))
    assert look(ledger, mark(ledger)).state == "complete"


def test_a_new_owner_of_a_partition_counts_only_what_it_has_read(ledger: Ledger) -> None:
    def note(owner: Assigned) -> None:
        [owner.marks] = ledger.run(reached.note(ledger.core, "k", [owner.where("group")]))

    begin(ledger)
    ledger.run(ledger.core.register_spout("k"))
    gone = Assigned(("topic", 0), 0, "id")
    gone.offsets.begin(np.arange(1_000))
    note(gone)
    before = mark(ledger)
    owner = Assigned(("topic", 0), 0, "id")  # nothing was committed: it begins at the first record
    first = owner.offsets.begin(np.arange(100))
    note(owner)
    owner.offsets.end_many(first, slice(None))
    note(owner)
    assert (look(ledger, before).state, look(ledger, before).records) == ("open", 1_000)
    owner.offsets.begin(np.arange(100, 1_000))
    note(owner)
    assert look(ledger, before).records == 900
    owner.offsets.end_many(owner.offsets._runs[-1], slice(None))
    note(owner)
    assert look(ledger, before).state == "complete"


def test_marks_that_were_merged_unheard_keep_all_their_open_records(ledger: Ledger) -> None:
    begin(ledger)
    ledger.run(ledger.core.register_spout("k"))
    owner, marks = Assigned(("topic", 0), 0, "id"), list[float]()
    for number in range(64):
        owner.offsets.begin(np.arange(10 * number, 10 * number + 10))
        [owner.marks] = ledger.run(reached.note(ledger.core, "k", [owner.where("group")]))
        marks.append(mark(ledger))
    owner.offsets.begin(np.arange(640, 650))
    for _ in range(2):  # the reply is lost, so it names the marks of before
        ledger.run(reached.note(ledger.core, "k", [owner.where("group")]))
    assert look(ledger, marks[63]).records == 640
    assert look(ledger, marks[1]).records == 20


def test_trees_of_a_spout_count_though_a_spout_of_its_name_noted_positions_once(ledger: Ledger) -> None:
    begin(ledger)
    ledger.run(ledger.core.register_spout("k"))
    for done in (0, 5):
        ledger.run(reached.note(ledger.core, "k", [Position("group/topic/0", "id", False, done, 5, {})]))
    ledger.track(ids.new_anchors(3), ids.new_ids(3), [b"m"] * 3, spout="k")
    answer = look(ledger, mark(ledger))
    assert (answer.state, answer.records) == ("open", 3)
    # A tree of a record that its spout has noted counts once.
    ledger.run(reached.note(ledger.core, "k", [Position("group/topic/0", "id", False, 5, 9, {})]))
    answer = look(ledger, mark(ledger))
    assert (answer.records, {place.step: place.records for place in answer.places}) == (
        4,
        {gates.IN_NO_STREAM: 3, "spout k": 1},
    )


def test_outcomes_of_a_spout_count_though_a_spout_of_its_name_noted_positions_once(ledger: Ledger) -> None:
    begin(ledger)
    ledger.run(ledger.core.register_spout("k"))
    for done in (0, 5):
        ledger.run(reached.note(ledger.core, "k", [Position("group/topic/0", "id", False, done, 5, {})]))
    message_ids = [b"m", b"topic/1@3", b"topic/0@4"]
    anchors = ids.new_anchors(3)
    ledger.track(anchors, ids.new_ids(3), message_ids, spout="k")
    ledger.fail(anchors, "bad")
    answer = look(ledger, mark(ledger))
    assert (answer.state, answer.records) == ("open", 2)  # the notes tell that offset 4 of topic/0 is done
    reader = OutcomeReader(ledger.core, "k")
    entries = ledger.run(reader.read())
    ledger.run(outcomes.confirm(ledger.core, "k", [one.confirmation for one in entries]))
    assert look(ledger, mark(ledger)).state == "complete"


def test_of_groups_that_nobody_reads_the_open_records_stay_alone(ledger: Ledger) -> None:
    def note(done: int) -> None:
        ledger.run(reached.note(ledger.core, "k", [Position("live/topic/0", "id", False, done, 9, {})]))

    begin(ledger)
    ledger.run(ledger.core.register_spout("k"))
    key, before = keys.reached("t"), now(ledger) - 31 * 86_400_000
    for group in range(600):
        marks = f" {before} 7 {group}" if group < 3 else ""
        text = f"k id 5@{before}{marks}" if group % 2 else f"k id 5{marks}"
        ledger.store.send([command("HSET", key, f"p:{group}/topic/0", text)])
    assert look(ledger, mark(ledger)).records == 3
    for _ in range(50):
        if ledger.store.send([command("HLEN", key)]) == [
            304
        ]:  # half of them; the server, the spout, two more
            break
        for _ in range(100):
            note(9)
    assert look(ledger, mark(ledger)).records == 3
    assert look(ledger, before / 1000).records == 0
    stored = pairs(ledger.store.send([command("HGETALL", key)])[0])
    assert stored[b"p:/old/k"].split()[3:] == [str(before).encode(), b"1", b"1"]
    ledger.run(remove_spout(ledger.core, "k"))
    assert ledger.store.send([command("HKEYS", key)]) == [[b"server"]]


def test_open_records_that_move_while_notes_are_read_page_by_page_are_not_missed(ledger: Ledger) -> None:
    begin(ledger)
    core, key = ledger.core, keys.reached("t")
    for spout in ("k", "other"):
        ledger.run(core.register_spout(spout))
    ledger.run(reached.note(core, "k", [Position("g/topic/0", "id", False, 0, 10, {})]))
    many = [Position(f"h/topic/{number}", "id", False, 5, 5, {}) for number in range(1_500)]
    ledger.run(reached.note(core, "other", many))
    before = now(ledger) + 1_000
    [kept] = ledger.store.send([command("HGET", key, "p:g/topic/0")])
    for place in range(1, 5):  # the note is on one of the pages, so it moves before and after that is read
        ledger.store.send([command("HDEL", key, "p:/old/k"), command("HSET", key, "p:g/topic/0", kept)])
        notes: dict[str, reached.Noted] = {}
        for exchange, _ in enumerate(after_each(ledger, _take(notes, reached.open_before(core, before)))):
            if exchange + 1 == place:
                ledger.store.send(
                    [command("HSET", key, "p:/old/k", kept), command("HDEL", key, "p:g/topic/0")]
                )
        assert notes["k"].open >= 10, place


def _take(notes: dict[str, reached.Noted], operation: Operation[dict[str, reached.Noted]]) -> Operation[None]:
    notes.update((yield from operation))
