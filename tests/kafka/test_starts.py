"""The start of a partition, for each policy and each kind of commit."""

from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from hypothesis import given
from hypothesis import strategies as st

from acker.kafka.options import FIRST_POLLS
from acker.kafka.partitions import answer_to
from acker.kafka.starts import NOTE_BYTES, Committed, first_offset, note, topic_id_of

LOW, HIGH, STARTED = 10, 100, 1_000


def start(policy: str, committed: Committed | None, topic_id: str = "new") -> int:
    return first_offset(policy, committed, LOW, HIGH, topic_id, STARTED)


@pytest.mark.parametrize("policy", FIRST_POLLS)
def test_without_a_commit_a_partition_begins_at_an_end(policy: str) -> None:
    assert start(policy, None) == (LOW if "earliest" in policy else HIGH)


@pytest.mark.parametrize("policy", FIRST_POLLS)
def test_a_commit_of_an_earlier_run_holds_for_uncommitted_ones(policy: str) -> None:
    expected = {"earliest": LOW, "latest": HIGH}.get(policy, 50)
    assert start(policy, Committed(50, "new", STARTED - 1)) == expected
    assert start(policy, Committed(50)) == expected


@pytest.mark.parametrize("policy", FIRST_POLLS)
def test_a_commit_of_this_run_holds_for_all(policy: str) -> None:
    assert start(policy, Committed(50, "new", STARTED)) == 50


@pytest.mark.parametrize("policy", FIRST_POLLS)
@pytest.mark.parametrize("offset", [0, 50, 500])
def test_a_topic_made_anew_is_read_from_its_first_record(policy: str, offset: int) -> None:
    assert start(policy, Committed(offset, "old", STARTED)) == LOW


def test_a_partition_that_lost_its_end_goes_on_there_and_without_ids_begins_again() -> None:
    assert start("uncommitted_earliest", Committed(500, "new", STARTED)) == HIGH
    assert start("uncommitted_earliest", Committed(500, "", STARTED)) == LOW


def test_records_that_retention_has_deleted_are_passed_over() -> None:
    assert start("uncommitted_latest", Committed(3, "new", STARTED)) == LOW


def test_an_id_of_zero_tells_no_topic_from_another() -> None:
    assert topic_id_of(Uuid(0, 0)) == topic_id_of(None) == ""
    assert topic_id_of(Uuid(0, 1)) == str(Uuid(0, 1))


def test_attempts_of_a_note_that_no_spout_has_written_are_taken_for_possible_ones() -> None:
    found = Committed.of(5, "acker id 1 0:0 1:9999")
    assert found is not None
    assert found.attempts == {5: 1, 6: 1_000}


@given(
    st.text("AZaz09+/=_-", max_size=64),
    st.integers(0, 10**15),
    st.integers(0, 2**62),
    st.dictionaries(st.integers(0, 10**6), st.integers(1, 1_000), max_size=30),
)
def test_a_note_is_read_as_it_was_written(topic_id: str, at: int, offset: int, far: dict[int, int]) -> None:
    attempts = {offset + one: tried for one, tried in far.items()}
    text = note(topic_id, at, offset, attempts)
    assert Committed.of(offset, text) == Committed(offset, topic_id, at, attempts)


def test_a_note_has_the_most_tried_records_where_there_is_no_room_for_all() -> None:
    attempts = {offset: 1 + (offset % 100 == 0) for offset in range(10_000)}
    text = note("id", 1, 0, attempts)
    found = Committed.of(0, text)
    assert found is not None
    assert len(text) <= NOTE_BYTES + 100
    assert {offset for offset, tried in attempts.items() if tried == 2} <= found.attempts.keys()
    assert Committed.of(0, note("id", 1, 0, attempts, 0)) == Committed(0, "id", 1)


def test_attempts_hold_for_the_topic_of_their_commit() -> None:
    tried = {50: 1, 60: 2}
    assert Committed(50, "a", 1, tried).attempts_of("a", 55) == {60: 2}
    assert Committed(50, "a", 1, tried).attempts_of("b", 50) == {}
    assert Committed(50, "", 1, tried).attempts_of("b", 50) == tried
    assert Committed(50, "", 1, tried).attempts_of("b", 0) == {}, "made anew, or read again by the policy"


@given(st.text(max_size=80))
def test_a_note_of_another_program_says_nothing(metadata: str) -> None:
    found = Committed.of(5, metadata)
    assert found is not None
    assert found.offset == 5
    assert Committed.of(-1001, metadata) is None
    assert Committed.of(5, None) == Committed(5)


def test_brokers_that_choose_a_coordinator_are_asked_again() -> None:
    errors = [
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ]
    asked = iter(errors)

    def ask() -> None:
        raise KafkaException(KafkaError(next(asked)))

    with pytest.raises(KafkaException, match="uthoriz"):
        answer_to(ask)
    assert next(asked, None) is None
    with pytest.raises(KafkaException, match="oordinator"):
        answer_to(partial(_raise, KafkaError.NOT_COORDINATOR), seconds=0)


def _raise(code: int) -> None:
    raise KafkaException(KafkaError(code))
