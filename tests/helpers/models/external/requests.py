"""Real requests in the words of the model: keys, vectors, bits and fails as the scripts get them."""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from acker.ledger import ids
from acker.store import scripts
from acker.store.operation import Request, Word
from acker.streams.staging.external import bits
from tests.helpers.models.external.shard import Content, Key, Received

_SHARD = re.compile(rb"acker:\{[^}/:]+:(\d+)/\d+\}:([a-z_]+):?(.*)", re.DOTALL)
_STREAM = re.compile(rb"acker:\{[^}/:]+/(\w+)\}:(\w+)")
DECLARED = 18
"""Keys that each script of a shard declares first, before the streams of outcomes."""


def shard_of(key: bytes) -> tuple[int, str, bytes] | None:
    """The shard of a key, its kind, and its own name; None where it is of no shard."""
    match = _SHARD.fullmatch(key)
    return (int(match[1]), match[2].decode(), match[3]) if match else None


def stream_of(key: bytes) -> str:
    """The stream of a key; empty where it is of none."""
    match = _STREAM.match(key)
    return match[1].decode() if match else ""


def staged_keys(keys: Iterable[bytes]) -> list[Key]:
    """The staged hashes among keys, each once."""
    places = (shard_of(key) for key in keys)
    return list(dict.fromkeys(staged_key(place[2]) for place in places if place and place[1] == "staged"))


def staged_key(name: bytes) -> Key:
    """The key of a staged hash, by its name in the shard."""
    token, _, slot = name.decode().rpartition(":")
    return Key(token, int(slot))


def flush_of(keys: Iterable[bytes]) -> str:
    """The flush whose notes are among keys; empty without."""
    places = (shard_of(key) for key in keys)
    return next((place[2].decode() for place in places if place and place[1] == "applied"), "")


def needed_of(word: Word) -> int | None:
    """The number of emits that a shard must hold of a flush; None without."""
    match = re.match(r"\d+", text(word))
    return int(match[0]) if match else None


def text(word: Word) -> str:
    """A word as text."""
    return word.decode("latin-1") if isinstance(word, bytes) else str(word)


def packed(word: Word) -> bytes:
    """A word as bytes."""
    return word if isinstance(word, bytes) else str(word).encode()


def members_of(request: Request) -> Iterator[Request]:
    """The calls of a chain (lua/store/chain.lua)."""
    words, own, at = request.args, 0, 0
    while at < len(words):
        name, count, size = text(words[at]), int(words[at + 1]), int(words[at + 2])
        members = request.keys[own : own + count]
        yield Request(members[0], words[at + 3 : at + 3 + size], scripts.get(name), members)
        own, at = own + count, at + 3 + size


# Vectors


def content_of(words: Sequence[Word]) -> Content:
    """The vectors of a call of send.lua, from its fields."""
    fields = {text(name): packed(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    vector = dict(_deltas(fields))
    rows, positions = None, 0
    if "alone" not in fields:
        rows, _, _, positions = map(int, fields["rows"].split())
    mask = frozenset(bits.unpack(fields["mask"])) if "mask" in fields else None
    of = fields.get("of", b"").decode()
    return Content(vector, rows, positions, mask, of=of)


def _deltas(fields: Mapping[str, bytes]) -> Iterator[tuple[int, int]]:
    """The delta of each tree, over all chunks (lua/streams/staging/stage.lua)."""
    slabs = iter([fields["slabs"][at : at + 8] for at in range(0, len(fields["slabs"]), 8)])
    for number in range(len(fields["layout"]) // 2):
        pairs = zip(
            struct.iter_unpack("<H", fields.get(f"indexes:{number}", b"")),
            struct.iter_unpack("<q", fields.get(f"deltas:{number}", b"")),
            strict=True,
        )
        for (count,) in struct.iter_unpack("<H", fields.get(f"counts:{number}", b"")):
            slab = next(slabs)
            for _ in range(count):
                (index,), (delta,) = next(pairs)
                yield ids.anchor_at(slab, index), delta
        dense = struct.iter_unpack("<q", fields.get(f"vectors:{number}", b""))
        for (length,) in struct.iter_unpack("<H", fields.get(f"lengths:{number}", b"")):
            slab = next(slabs)
            for index in range(length):
                (delta,) = next(dense)
                if delta:
                    yield ids.anchor_at(slab, index), delta
        for (delta,) in struct.iter_unpack("<q", fields.get(f"ones:{number}", b"")):
            yield ids.anchor_at(next(slabs), 0), delta


def tracks_of(request: Request, reply: str) -> Iterator[tuple[bytes, dict[int, int]]]:
    """The slabs that a call of track.lua has tracked, with their values. reply: a letter for each."""
    values = request.args[8::2]
    own = request.keys[len(request.keys) - len(values) :]
    for key, value, letter in zip(own, values, reply, strict=True):
        if letter == "A":
            slab = key[-8:]
            words = enumerate(struct.iter_unpack("<q", packed(value)))
            yield slab, {ids.anchor_at(slab, index): word for index, (word,) in words}


# Bits and fails


def parts_of(request: Request) -> list[Received]:
    """The rows of a call of receive.lua."""
    keys = staged_keys(request.keys)
    words = request.args[6:]
    return [
        Received(
            key,
            frozenset(range(int(first)) if int(first) else bits.unpack(packed(bitmap))),
            fails_of(packed(fails)),
        )
        for key, first, bitmap, fails in zip(keys, words[::3], words[1::3], words[2::3], strict=True)
    ]


def fails_of(fails: bytes) -> dict[int, tuple[int, ...]]:
    """Packed fails: the trees of each position (lua/streams/includes/external.lua)."""
    rows, at = dict[int, tuple[int, ...]](), 0
    while at < len(fails):
        position, count = struct.unpack_from("<HB", fails, at)
        at += 3
        trees = [fails[place : place + 10] for place in range(at, at + 10 * count, 10)]
        at += 10 * count
        (length,) = struct.unpack_from("<H", fails, at)
        at += 2 + length
        rows[position] = tuple(ids.anchor_at(tree[:8], struct.unpack("<H", tree[8:])[0]) for tree in trees)
    return rows
