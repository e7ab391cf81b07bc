"""The model beside a real store: it takes each request that the store gets, and both must agree.

Replies are compared, and after each call that changes something the trees, the hashes of segments, the notes
of flushes and the stream's own keys.
"""

from collections.abc import Container
from copy import deepcopy
from typing import Any

import redis

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.settings.config import TopologyConfig
from acker.store import keys
from acker.store.operation import Reply, Request
from acker.streams.log import segments
from acker.streams.staging.external import declaring
from tests.helpers.models.external import requests, stored, upkeep
from tests.helpers.models.external.rules import Rules, Times
from tests.helpers.models.external.shard import Shard
from tests.helpers.models.external.stream import Announced, Refused, Stream

HOLD = 30 * 86400
SECONDS = Times(
    TopologyConfig("t").stamp_ttl, declaring.MARGIN, HOLD, int(declaring.LOST_AFTER), int(declaring.DOWNTIME)
)
MILLISECONDS = Times(*(1000 * time for time in SECONDS))
IGNORED = {"declare_external", "subscribe"}
"""Scripts that the model does not know: it looks at what they have made."""


class Shadow:
    """The model of a topology's external streams. now: seconds of the store's clock."""

    def __init__(self, raw: "redis.Redis", ledger: Ledger, streams: tuple[str, ...], now: int) -> None:
        self.raw, self.ledger, self.names, self.now = raw, ledger, streams, now
        self.clear()

    def clear(self) -> None:
        """Begins with a store that holds nothing but its streams."""
        count = self.ledger.config.ackers
        self.shards = [Shard(Rules(), MILLISECONDS, ids.slab_of) for _ in range(count)]
        self.streams = {name: Stream(Rules(), SECONDS, ()) for name in self.names}
        self._keys = dict.fromkeys(self.names, b"")
        self.move(0)
        self._learn()

    def move(self, seconds: int) -> None:
        """The clock goes on."""
        self.now += seconds
        for shard in self.shards:
            shard.now = self.now * 1000
            shard.expire()
        for stream in self.streams.values():
            stream.now = self.now
            stream.expire()

    def snapshot(self) -> Any:
        """A copy of all of it."""
        return deepcopy((self.shards, self.streams)), dict(self._keys), self.now

    def restore(self, snapshot: Any, tags: Container[bytes] | None) -> None:
        """Goes back to a copy. tags: the hash tags of what goes back; None for all."""
        (shards, streams), stamp_keys, then = deepcopy(snapshot)
        topology = self.ledger.config.name
        for number, shard in enumerate(shards):
            if tags is None or b"%s:%d/%d" % (topology.encode(), number, len(shards)) in tags:
                for staged in shard.staged.values():
                    staged.until += (
                        self.now - then
                    ) * 1000  # a key is restored with the life that it had left
                self.shards[number] = shard
        for name, stream in streams.items():
            if tags is None or f"{topology}/{name}".encode() in tags:
                self.streams[name], self._keys[name] = stream, stamp_keys[name]
        self.move(0)

    def tick(self) -> None:
        """A ticker's round, with the pass over open segments."""
        upkeep.keep(Rules(), self.shards, self.streams)
        for shard in self.shards:
            shard.trees.rotate(shard.now)

    # Requests

    def take(self, request: Request, reply: Reply) -> bool:
        """Takes a request that the store has replied to; True if it may have changed something."""
        name = request.script.name if request.script is not None else str(request.args[0])
        if name in IGNORED:
            self._learn()
            return False
        script = getattr(self, f"_{name.lower()}", None)
        if script is None:
            return False
        script(request, reply)
        return True

    def _shard(self, request: Request) -> Shard:
        place = requests.shard_of(request.keys[0] if request.keys else request.key)
        assert place is not None
        return self.shards[place[0]]

    def _track(self, request: Request, reply: Reply) -> None:
        if isinstance(reply, bytes):
            for slab, values in requests.tracks_of(request, reply.decode()):
                self._shard(request).track(slab, values)

    def _send(self, request: Request, reply: Reply) -> None:
        [key] = requests.staged_keys(request.keys)
        until, content = int(request.args[1]), requests.content_of(request.args[2:])
        assert self._shard(request).send(key, content, until) == reply

    def _chain(self, request: Request, reply: Reply) -> None:
        for member, answer in zip(requests.members_of(request), reply or (), strict=False):
            if isinstance(answer, bytes) and answer.startswith(b"!"):
                answer = redis.ResponseError(answer[1:].decode())
            self.take(member, answer)

    def _expire(self, request: Request, reply: Reply) -> None:
        place = requests.shard_of(request.key)
        if place is not None and place[1] == "applied":
            assert int(request.args[2]) == 2 * SECONDS.ttl
            self.shards[place[0]].keep_notes(place[2].decode())

    def _apply_staged(self, request: Request, reply: Reply) -> None:
        if isinstance(reply, redis.ResponseError):
            return  # it asks for the spouts of the shard
        shard, to, needed = self._shard(request), requests.text(request.args[1]), request.args[3]
        flush, staged = requests.flush_of(request.keys), requests.staged_keys(request.keys)
        if to == "1":
            looks = int(bytes(reply).split()[4])
            assert shard.emit(flush, staged) == (looks > 0)
        else:
            left = [shard.staged[key] for key in staged if key in shard.staged]
            open_hashes = [
                hash_ for hash_ in left if hash_.content.rows and not hash_.full and hash_.state in (0, 1)
            ]
            assert len(open_hashes) == int(bytes(reply).split()[4])
            whole = [shard.ack(key, flush, requests.needed_of(needed)) for key in staged]
            assert all(whole) or int(bytes(reply).split()[3]) > 0

    def _receive(self, request: Request, reply: Reply) -> None:
        if isinstance(reply, redis.ResponseError):
            return
        flush, needed = requests.flush_of(request.keys), requests.needed_of(request.args[3])
        letters = self._shard(request).receive(flush, needed, requests.parts_of(request))
        assert letters == bytes(reply).partition(b" ")[0].decode()

    def _fail(self, request: Request, reply: Reply) -> None:
        if isinstance(reply, bytes):
            for key in requests.staged_keys(request.keys):
                self._shard(request).fail_staged(key)

    def _leave_tombstone(self, request: Request, reply: Reply) -> None:
        for key in requests.staged_keys(request.keys):
            self._shard(request).leave_tombstone(key)

    def _unlink(self, request: Request, reply: Reply) -> None:
        place = requests.shard_of(request.key)
        if place is not None and place[1] == "applied":
            self.shards[place[0]].end(place[2].decode())

    def _announce(self, request: Request, reply: Reply) -> None:
        name = requests.stream_of(request.keys[0])
        stream, announced = self.streams[name], []
        words = zip(request.args[8::5], request.args[11::5], request.args[12::5], strict=True)
        for sent, before, after in words:
            record = segments.readable(f"{requests.text(before)}{requests.text(after)}".encode())
            announced.append(Announced(record.id, int(sent), record.shards))
        known = {int(slot) for slot in requests.text(request.args[6]).split(",") if slot}
        wanted: Any
        if requests.packed(request.args[1]) != self._keys[name]:
            wanted = "LOST"
        elif known - set(stream.slots):
            wanted = "FORGOTTEN"
        else:
            try:
                wanted = stream.announce(0, announced)
            except Refused as refused:
                wanted = str(refused)
        if isinstance(reply, redis.ResponseError):
            assert str(reply) == f"ACKER {wanted}"
        else:
            slots = [tuple(map(int, filter(None, text.decode().split(",")))) for text in reply[1:]]
            assert slots == wanted

    def _note_received(self, request: Request, reply: Reply) -> None:
        stream = self.streams[requests.stream_of(request.keys[0])]
        marker = request.keys[1].decode().rpartition("}:")[2]
        slot, newest = int(request.args[0]), int(request.args[1])
        assert isinstance(reply, redis.ResponseError) == (slot not in stream.slots)
        if slot in stream.slots:
            stream.note_received(marker, slot, newest)

    # The store

    def _learn(self) -> None:
        """Reads the subscriptions and the key of each stream."""
        for name, stream in self.streams.items():
            own = keys.Stream(self.ledger.config.name, name)
            fields: Any = self.raw.hgetall(own.subscriptions)
            stream.slots = tuple(map(int, filter(None, fields.get(b"slots", b"").decode().split(","))))
            number = fields.get(b"external", b"0").decode()
            self._keys[name] = fields.get(f"stamp_key:{number}".encode(), b"")

    def compare(self) -> None:
        """Fails where the store and the model differ."""
        stored.assert_same_trees(self.raw, self.ledger, self.shards)
        stored.assert_same_hashes(self.raw, self.ledger, self.shards)
        stored.assert_same_streams(self.raw, self.ledger, self.streams)
