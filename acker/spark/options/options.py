"""The options of the data source, checked. Spark hands them over as text, their names without case."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Unpack, cast

from acker.errors import UnknownTopology, ValidationError
from acker.ledger.client import Ledger, follow
from acker.ledger.settings.config import SETTINGS, Settings, check_name
from acker.ledger.settings.settings import choice, flag, number, of, text
from acker.ledger.settings.suggestions import meant
from acker.store.client import TIMEOUTS, Store
from acker.streams.log.segments import COMPRESSIONS, LARGEST_SEGMENT, SEGMENT_ROWS
from acker.streams.log.subscriptions import DEFAULT
from acker.streams.sources.spout_options import OPTIONS as SPOUTS
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.staging.staging import STAGING_TTL, Staging
from acker.streams.upkeep.retention import LONGEST_AGE

BATCH_WRITE = "writing a DataFrame that is not streaming"
READ = "reading"
WRITE = "writing with format('acker')"
TRACK = "acker.spark.track"
_SPARKS_OWN = {"checkpointlocation", "queryname"}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `format("acker")`. An unknown name or a bad value is a ValidationError.

    settings: those of the topology (`acker.ledger.settings.config.TopologyConfig`), each an option of its
    own. With any of them the topology is made where there is none, and compared where there is one
    (TopologyConfigError); without, it must be there (UnknownTopology). spouts: those of a spout
    (`acker.streams.SpoutOptions`), each an option of its own, too. subscription_named: whether `subscription`
    is given. `OPTIONS` tells of the others.
    """

    url: str = text(MISSING, "`redis://`, `rediss://`, `unix://`", "The store.", shown=False)
    topology: str = text(MISSING, "name", "The topology.")
    stream: str = text(MISSING, "name", "The stream: 1 to 64 of `A-Z a-z 0-9 . _ -`.")
    subscription: str = text(
        DEFAULT, "name", "Whose segments are read: each subscription of a stream has all of them, the "
        "queries that share one have each segment once."
    )  # fmt: skip
    subscription_named: bool = False
    cluster: bool = flag(False, "Whether `url` is of a node of a Redis Cluster.")
    timeout: float = number(10.0, *TIMEOUTS, "Seconds until `StoreUnavailable`.")
    settings: Settings = field(default_factory=Settings)
    spouts: Mapping[str, Any] = field(default_factory=dict)
    max_rows: int = number(
        10_000_000, 1, 10**12, "Most rows of a micro-batch; a segment is never cut, and one is always taken."
    )
    max_bytes: int = number(
        256 << 20, 1, 10**15, "Most bytes of the rows of a micro-batch, before compression (256 MiB)."
    )  # fmt: skip
    max_segments: int = number(1_000, 1, 10_000, "Most segments of a micro-batch.")
    partitions: int | None = number(
        None, 1, 10_000, "Most tasks that read a batch; without, by its size, up to 8."
    )
    dead_letters: bool = flag(
        False, "Reads dead letters in place of the stream's rows: the letters of `spout`. "
        "Only `max_rows` goes with it.", uses=(READ,)
    )  # fmt: skip
    stale: bool = flag(
        False, "Whether rows come, too, whose trees are all over, which are else dropped and counted.",
        uses=(READ,)
    )  # fmt: skip
    requests: bool = flag(
        False, "Whether a row comes for each request, too, where the stream gathers: see "
        "`acker.spark.gathered`.", uses=(READ,)
    )  # fmt: skip
    fair_by: str = text(
        "", "column", "The stream is read fairly by that column, `_acker` for the trees: who has "
        "written many rows keeps nobody else waiting. Goes with a `max_rows`, which batches share.",
        uses=(READ,)
    )  # fmt: skip
    schema_timeout: float = number(
        0.0, 0.0, 86400.0, "Seconds to wait for the first write of a stream whose schema is not known yet."
    )
    segment_rows: int = number(
        SEGMENT_ROWS, 1, LARGEST_SEGMENT, "Most rows of a segment that is written; it has at most 16 MiB of "
        "them, before compression."
    )  # fmt: skip
    compression: str = choice(COMPRESSIONS, "How segments that are written are compressed.")
    staging_ttl: int = number(
        STAGING_TTL, 1, 7 * 86400, "Seconds that staged rows wait for their commit: more than a batch takes."
    )
    stream_max_age: float | None = number(
        None, 1.0, LONGEST_AGE, "Sets how many seconds the stream keeps what is not acked, at first 7 days. "
        "Older segments are dropped, and their trees expire.", uses=(WRITE,)
    )  # fmt: skip
    stream_max_bytes: int | None = number(
        None, 1, 10**15, "Sets how many bytes of that it keeps, at first 16 GiB.", uses=(WRITE,)
    )
    anchored: bool = flag(
        True, "false: what a streaming query writes may come without anchors, though what it read has trees.",
        uses=(WRITE,)
    )  # fmt: skip
    run: str = text(
        "", "name", "Names a batch write: under the same name nothing is written to that stream again (known "
        "for 29 days).", uses=(BATCH_WRITE,)
    )  # fmt: skip
    stateless: bool = flag(
        False, "Says that the query has no operator with state over its trees, where Spark does not tell."
    )
    message_id: str = text(
        "", "column", "Writes as a spout: each row is a tree of its own, with that name.", uses=(WRITE, TRACK)
    )
    spout: str = text("", "name", "The spout's name; without, the stream's.")
    after_loss: str = choice(
        ("stop", "go on"), "What a spout's query does where the store has lost what it had: it ends with "
        "`StoreLost`, or leaves the rows that waited there lost."
    )  # fmt: skip

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Options from Spark's; ValidationError that names the option and what was expected."""
        values: dict[str, object] = {}
        for name, value in given.items():
            name = name.lower()
            if name in _SPARKS_OWN:
                continue
            option = OPTIONS.get(name)
            if option is None:
                near = meant(name, OPTIONS)
                raise ValidationError(f"unknown option {name!r}{near}; known are {', '.join(OPTIONS)}")
            values[name] = option.parse(value, name)
        missing = [name for name in ("url", "topology", "stream") if name not in values]
        if missing:
            raise ValidationError(f"missing option {', '.join(missing)}; known are {', '.join(OPTIONS)}")
        settings, spouts = (
            {name: values.pop(name) for name in own if name in values} for own in (SETTINGS, SPOUTS)
        )
        values["subscription_named"] = "subscription" in values
        options = cls(**values, settings=cast(Settings, settings), spouts=spouts)  # type: ignore[arg-type]
        check_name(options.topology, "topology")
        check_name(options.stream, "stream")
        check_name(options.subscription, "subscription")
        if "run" in values:
            check_name(options.run, "run")
        given_for_spout = [*filter(values.__contains__, ["spout"]), *spouts]
        if options.dead_letters and given_for_spout == ["spout"]:
            check_name(options.spout, "spout")
        elif given_for_spout and not options.message_id:
            raise ValidationError(f"option {given_for_spout[0]}: expected with message_id, which is missing")
        options.of_spout()
        return options

    def check_use(self, *uses: str) -> None:
        """Raises ValidationError where an option was given that is only for another use."""
        for name, one in OPTIONS.items():
            if one.uses and getattr(self, name) != one.default and not set(one.uses).intersection(uses):
                raise ValidationError(f"option {name}: only for {' and '.join(one.uses)}")

    def ledger(self) -> Ledger:
        """The ledger of the topology; one for each process and configuration. Raises UnknownTopology."""
        try:
            return _ledger(self.url, self.topology, self.cluster, self.timeout, **self.settings)
        except UnknownTopology as error:
            raise UnknownTopology(f"{error}{_UNKNOWN}") from None

    def of_spout(self) -> SpoutOptions | None:
        """How rows that are written become roots; None where they do not."""
        if not self.message_id:
            return None
        return SpoutOptions(self.spout or self.stream, self.stream, self.message_id, **self.spouts)

    def staging(self) -> Staging:
        """How rows are staged."""
        return Staging(self.stream, self.segment_rows, compression=self.compression, ttl=self.staging_ttl)


_UNKNOWN = (
    ". The first program that names a setting of the topology makes it, as message_timeout=60 does: start"
    " that first. A job that only reads waits for it with the option schema_timeout, in seconds"
)
OPTIONS = of(Options) | SETTINGS | SPOUTS
"""All options, and what each can be."""


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
