"""The options of the data source, checked. Spark hands them over as text, their names without case."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Unpack, cast

from acker.errors import UnknownTopology, ValidationError
from acker.ledger.client import Ledger, follow
from acker.ledger.config import SETTINGS, Settings, check_name
from acker.ledger.near import meant
from acker.store.address import parse_flag
from acker.store.client import TIMEOUTS, Store
from acker.streams.commits.roots import (
    ATTEMPTS,
    BAD_MESSAGE_IDS,
    LONGEST_BACKOFF,
    MAX_BACKOFF,
    MOST_ATTEMPTS,
    Tracking,
)
from acker.streams.commits.staging import STAGING_TTL, Staging
from acker.streams.retention import LONGEST_AGE
from acker.streams.segments import COMPRESSIONS, LARGEST_SEGMENT, SEGMENT_ROWS
from acker.streams.subscriptions import DEFAULT

MAX_ROWS = 10_000_000
MAX_SEGMENTS = 1_000
_SPOUT = (
    "spout", "attempts", "attempt", "outcomes", "max_spout_pending", "offset", "partition",
    "bad_message_id", "backoff", "max_backoff",
)  # fmt: skip
BATCH_WRITE = "writing a DataFrame that is not streaming"
READ = "reading"
WRITE = "writing with format('acker')"
TRACK = "acker.spark.track"
ONLY: Mapping[str, tuple[str, ...]] = {
    "run": (BATCH_WRITE,),
    "dead_letters": (READ,),
    "stale": (READ,),
    "message_id": (WRITE, TRACK),
    "stream_max_age": (WRITE,),
    "stream_max_bytes": (WRITE,),
    "anchored": (WRITE,),
}
_SPARKS_OWN = {"checkpointlocation", "queryname"}


def _whole(low: float, high: float) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    parse.__doc__ = f"a whole number from {low:,} to {high:,}"
    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    parse.__doc__ = f"a number from {low:,.15g} to {high:,.15g}"
    return parse


def _text(text: str) -> str:
    """text"""  # noqa: D403, D415 - what is expected, for the message
    return text


def _compression(text: str) -> str:
    """lz4, zstd or none"""  # noqa: D415
    if text not in COMPRESSIONS:
        raise ValueError(text)
    return text


def _bad_message_id(text: str) -> str:
    """dead_letter or untracked"""  # noqa: D415 - what is expected, for the message
    if text not in BAD_MESSAGE_IDS:
        raise ValueError(text)
    return text


def _after_loss(text: str) -> str:
    """stop or go on"""  # noqa: D403, D415
    if text not in ("stop", "go on"):
        raise ValueError(text)
    return text


PARSERS: Mapping[str, Callable[[str], object]] = {
    "url": _text,
    "topology": _text,
    "stream": _text,
    "subscription": _text,
    "cluster": parse_flag,
    "timeout": _number(*TIMEOUTS),
    **{
        setting: (_whole if known.kind is int else _number)(known.low, known.high)
        for setting, known in SETTINGS.items()
    },
    "max_rows": _whole(1, 10**12),
    "max_segments": _whole(1, 10_000),
    "dead_letters": parse_flag,
    "stale": parse_flag,
    "partitions": _whole(1, 10_000),
    "schema_timeout": _number(0, 86400),
    "segment_rows": _whole(1, LARGEST_SEGMENT),
    "compression": _compression,
    "staging_ttl": _whole(1, 7 * 86400),
    "stream_max_age": _number(1, LONGEST_AGE),
    "stream_max_bytes": _whole(1, 10**15),
    "anchored": parse_flag,
    "run": _text,
    "stateless": parse_flag,
    "message_id": _text,
    "spout": _text,
    "attempts": _whole(1, MOST_ATTEMPTS),
    "attempt": _text,
    "outcomes": parse_flag,
    "max_spout_pending": _whole(1, 10**9),
    "offset": _text,
    "partition": _text,
    "bad_message_id": _bad_message_id,
    "backoff": _number(0, LONGEST_BACKOFF),
    "max_backoff": _number(0, LONGEST_BACKOFF),
    "after_loss": _after_loss,
}
"""All options, and how each is read: the docstring of a parser tells what it expects."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `format("acker")`. An unknown name or a bad value is a ValidationError.

    url, topology, stream: required. cluster: whether the URL is of a node of a Redis Cluster. timeout:
    seconds until StoreUnavailable.
    settings: those of the topology (`acker.ledger.config.TopologyConfig`), each an option of its own. With
    any of them the topology is made where there is none, and compared where there is one
    (TopologyConfigError); without, it must be there (UnknownTopology).
    Reading: subscription: whose segments these are (default "default"): each subscription of a stream has
    all of them, the queries that share one have each segment once. subscription_named: whether it is given.
    max_rows, max_segments: most that one micro-batch takes (a segment is never cut, and one is always taken).
    partitions: most partitions of a batch (default: by its size, at most 8). dead_letters: in place of the
    stream's rows, those of them that `spout` (default: the stream's name) has given up
    (`acker.spark.letters`); only max_rows goes with it.
    stale: whether rows come, too, whose trees are all over, which are else dropped (`acker.streams.stale`).
    schema_timeout: seconds to wait for the first write of a stream whose schema is not known yet (default 0).
    Writing: segment_rows: rows of a segment at most. compression: lz4 (default), zstd or none. staging_ttl:
    seconds that what is staged waits for its commit (default 3,600): longer than a batch can take.
    stream_max_age, stream_max_bytes: sets how much the stream keeps for who has not acked it, in seconds
    (default 7 days) and bytes (default 16 GiB); what is over that is dropped, and its trees expire.
    anchored: false: rows of a streaming write may come without anchors, though what they come from has some.
    run: names the write of a DataFrame that is not streaming: under the same name nothing is written to that
    stream again; known for a month.
    stateless: says that no operator of the query keeps state over rows that have trees, where Spark does not
    tell (`acker.spark.verdicts`).
    Writing as a spout: message_id: the column that names a row, which makes each row a tree of its own.
    spout: its name (default: the stream's). attempts, attempt, outcomes, max_spout_pending, offset,
    partition, bad_message_id, backoff, max_backoff: see `acker.streams.commits.roots.Tracking`.
    after_loss: "stop" (default) ends a query with StoreLost where the store has lost what a spout's query has
    committed to it; "go on" leaves the rows that waited there lost.
    """

    url: str = field(repr=False)
    topology: str
    stream: str
    subscription: str = DEFAULT
    subscription_named: bool = False
    cluster: bool = False
    timeout: float = 10.0
    settings: Settings = field(default_factory=Settings)
    max_rows: int = MAX_ROWS
    max_segments: int = MAX_SEGMENTS
    partitions: int | None = None
    dead_letters: bool = False
    stale: bool = False
    schema_timeout: float = 0.0
    segment_rows: int = SEGMENT_ROWS
    compression: str = "lz4"
    staging_ttl: int = STAGING_TTL
    stream_max_age: float | None = None
    stream_max_bytes: int | None = None
    anchored: bool = True
    run: str = ""
    stateless: bool = False
    message_id: str = ""
    spout: str = ""
    attempts: int = ATTEMPTS
    attempt: str = ""
    outcomes: bool = False
    max_spout_pending: int | None = None
    offset: str = ""
    partition: str = ""
    bad_message_id: str = BAD_MESSAGE_IDS[0]
    backoff: float = 0.0
    max_backoff: float = MAX_BACKOFF
    after_loss: str = "stop"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Options from Spark's; ValidationError that names the option and what was expected."""
        values: dict[str, object] = {}
        for name, text in given.items():
            name = name.lower()
            if name in _SPARKS_OWN:
                continue
            parser = PARSERS.get(name)
            if parser is None:
                near = meant(name, PARSERS)
                raise ValidationError(f"unknown option {name!r}{near}; known are {', '.join(PARSERS)}")
            try:
                values[name] = parser(text)
            except (ValueError, KeyError):
                raise ValidationError(f"option {name}: expected {parser.__doc__}, got {text!r}") from None
        missing = [name for name in ("url", "topology", "stream") if name not in values]
        if missing:
            raise ValidationError(f"missing option {', '.join(missing)}; known are {', '.join(PARSERS)}")
        settings = {setting: values.pop(setting) for setting in SETTINGS if setting in values}
        values["subscription_named"] = "subscription" in values
        options = cls(**values, settings=cast(Settings, settings))  # type: ignore[arg-type]
        check_name(options.topology, "topology")
        check_name(options.stream, "stream")
        check_name(options.subscription, "subscription")
        if "run" in values:
            check_name(options.run, "run")
        given_for_spout = [name for name in _SPOUT if name in values]
        if options.dead_letters and given_for_spout == ["spout"]:
            check_name(options.spout, "spout")
        elif given_for_spout and not options.message_id:
            raise ValidationError(f"option {given_for_spout[0]}: expected with message_id, which is missing")
        options.tracking()
        return options

    def check_use(self, *uses: str) -> None:
        """Raises ValidationError where an option was given that is only for another use."""
        for name, own in ONLY.items():
            if getattr(self, name) != _DEFAULTS[name] and not set(own).intersection(uses):
                raise ValidationError(f"option {name}: only for {' and '.join(own)}")

    def ledger(self) -> Ledger:
        """The ledger of the topology; one for each process and configuration. Raises UnknownTopology."""
        try:
            return _ledger(self.url, self.topology, self.cluster, self.timeout, **self.settings)
        except UnknownTopology as error:
            raise UnknownTopology(f"{error}{_UNKNOWN}") from None

    def tracking(self) -> Tracking | None:
        """How rows that are written become roots; None where they do not."""
        if not self.message_id:
            return None
        return Tracking(
            self.spout or self.stream,
            self.stream,
            self.message_id,
            self.attempts,
            self.attempt,
            self.outcomes,
            self.max_spout_pending,
            self.offset,
            self.partition,
            self.bad_message_id,
            self.backoff,
            self.max_backoff,
        )

    def staging(self) -> Staging:
        """How rows are staged."""
        return Staging(self.stream, self.segment_rows, compression=self.compression, ttl=self.staging_ttl)


_UNKNOWN = (
    ". The first program that names a setting of the topology makes it, as message_timeout=60 does: start"
    " that first. A job that only reads waits for it with the option schema_timeout, in seconds"
)
_DEFAULTS = {one.name: one.default for one in fields(Options)}


def texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Keyword arguments as Spark takes options, without those of value None."""
    return {name: str(value) for name, value in settings.items() if value is not None}


def of_step(stream: str, settings: Mapping[str, object], *uses: str) -> Options:
    """Options from the keyword arguments of what has no stream of its own to name; ValidationError."""
    if any(name.lower() == "stream" for name in settings):
        raise ValidationError("option stream: only for format('acker')")
    options = Options.parse(texts({**settings, "stream": stream}))
    options.check_use(*uses)
    return options


def _ledger(url: str, topology: str, cluster: bool, timeout: float, **settings: Unpack[Settings]) -> Ledger:
    """The ledger that this process has, if the topology is still what it was."""
    key = (url, topology, cluster, timeout, *sorted(settings.items()))
    known = _ledgers.get(key)
    store = Store(url, timeout=timeout, cluster=cluster) if known is None else known.store
    found = _ledgers[key] = follow(known, store, topology, **settings, create=bool(settings))
    if len(_ledgers) > _MOST_LEDGERS:
        _ledgers.pop(next(iter(_ledgers)), None)
    return found


_MOST_LEDGERS = 64
_ledgers: dict[tuple[object, ...], Ledger] = {}
"""Store, topology and settings -> the ledger of this process."""
