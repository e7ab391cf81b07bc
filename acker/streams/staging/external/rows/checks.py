"""Checks of stamps: 40 bits of a keyed hash of a row's position and anchors.

BLAKE2b derives the keys of a segment from the key of the stream and from the common part of its stamps. Rows
are hashed with them by multiplications, which numpy does for a whole column. A changed stamp has the right
check by chance only, 1 in 2^39. A check does not sign: a reader of many stamps of a segment may work out its
keys, and could as well copy these stamps.

Terms: an anchor is the number of a tree; a segment is the rows of an external stream that one sender stamped
together.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from acker.ledger.ids import Ids

CHECK_BITS = 40
Numbers: TypeAlias = npt.NDArray[np.uint64]
Keys: TypeAlias = tuple[int, int, int, int]
"""The keys of a segment, of 64 bits each; the second and the last are odd."""
_WORD, _REST = (1 << 64) - 1, 64 - CHECK_BITS
_KEYS_BYTES = 32


def start_of(key: bytes, topology: str, stream: str) -> "hashlib.blake2b":
    """The begin of the hashes that derive keys of segments of a stream."""
    start = hashlib.blake2b(digest_size=_KEYS_BYTES, key=key, person=b"acker-stamp")
    start.update(f"{topology}\0{stream}\0".encode())
    return start


def derived(start: "hashlib.blake2b", head: bytes) -> Keys:
    """The keys of a segment, by the bytes that all its stamps begin with."""
    hashed = start.copy()
    hashed.update(head)
    digest = hashed.digest()
    first, second, third, fourth = (int.from_bytes(digest[at : at + 8], "big") for at in range(0, 32, 8))
    return first, second | 1, third, fourth | 1


def check(keys: Keys, position: int, anchors: Iterable[int], count: int) -> int:
    """The check of a row, as a number of 40 bits."""
    added, times, first, last = keys
    word = ((position << 8 | count) ^ first) * times & _WORD
    word ^= word >> 32
    for anchor in anchors:
        word = ((word ^ anchor) & _WORD) * times & _WORD
        word ^= word >> 32
    return ((word + added) * last & _WORD) >> _REST


def check_one(keys: Keys, position: int, anchor: int) -> int:
    """The check of a row with one anchor, as `check` returns it: most rows have one."""
    added, times, first, last = keys
    word = ((position << 8 | 1) ^ first) * times & _WORD
    word = ((word ^ word >> 32 ^ anchor) & _WORD) * times & _WORD
    return (((word ^ word >> 32) + added) * last & _WORD) >> _REST


def checks(keys: Any, positions: Ids, anchors: Ids) -> Numbers:
    """The checks of rows with one anchor each, as `check` returns each of them.

    keys: The keys of the segment of all rows, or four arrays with a key of each row.
    """
    added, times, first, last = (np.asarray(key, np.uint64) for key in keys)
    word: Numbers = positions.astype(np.uint64)
    word <<= np.uint64(8)
    word |= np.uint64(1)
    word ^= first
    _spread(word, times)
    word ^= anchors.view(np.uint64)
    _spread(word, times)
    word += added
    word *= last
    word >>= np.uint64(_REST)
    return word


def _spread(word: Numbers, times: Numbers) -> None:
    word *= times
    word ^= word >> np.uint64(32)
