"""Every stored record is read as it was written, or not at all."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.errors import UnreadableRecord
from tests.helpers.records import codecs

CODECS = codecs()
HOSTILE = [b"null", b"[]", b"{}", b"-0", b"1e999", b"NaN", b'"\\ud800"', b"9" * 5000, b"[" * 5000]


def same(value: object, other: object) -> bool:
    """True if two pieces of JSON say the same."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    return value == other and isinstance(value, bool) == isinstance(other, bool)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=50)
@given(data=st.data())
def test_a_record_is_read_as_it_was_written_or_not_at_all(name: str, data: st.DataObject) -> None:
    """Whatever bytes of it are changed, lost or doubled: no other error, and no part of a value."""
    codec, values = CODECS[name]
    value: Any = data.draw(values)
    stored = codec.dump(value)
    assert codec.load(stored) == codec.load(stored.encode())
    assert codec.dump(codec.load(stored)) == stored
    damaged = bytearray(stored.encode())
    at = data.draw(st.integers(0, len(damaged) - 1))
    kind = data.draw(st.sampled_from(["flipped", "cut", "left out", "doubled", "replaced"]))
    if kind == "flipped":
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del damaged[at:]
    elif kind == "left out":
        del damaged[at : at + data.draw(st.integers(1, 8))]
    elif kind == "doubled":
        damaged[at:at] = damaged[at : at + data.draw(st.integers(1, 8))]
    else:
        damaged[at : at + 1] = data.draw(st.sampled_from(HOSTILE))
    try:
        found = codec.load(bytes(damaged))
    except UnreadableRecord:
        return
    assert same(json.loads(codec.dump(found)), json.loads(damaged))


@pytest.mark.parametrize("name", CODECS)
def test_a_record_of_hostile_size_is_refused(name: str) -> None:
    codec, _ = CODECS[name]
    with pytest.raises(UnreadableRecord, match="expected at most"):
        codec.load(b" " * (codec.most + 1))
    with pytest.raises(UnreadableRecord):
        codec.load(b"[" * min(codec.most, 1 << 20))
