"""The checked options of the data source. Spark passes them as text, with names in any case.

Terms: roots are rows of a spout that were staged together, and get a tree each; staged rows are stored, but
nobody sees them before a commit.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Unpack, cast

from acker.collectors.modes.observing import PATIENCE, ObservedLedger
from acker.collectors.modes.off import is_off, off_ledger
from acker.errors import UnknownTopology, ValidationError
from acker.ledger.client import Ledger, follow
from acker.ledger.settings.config import SETTINGS, Settings, check_name
from acker.ledger.settings.settings import choice, flag, number, settings_of, text
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
STEP = "bolts and jobs"
_SPARKS_OWN = {"checkpointlocation", "queryname"}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `format("acker")`; `OPTIONS` describes each.

    Attributes:
        settings: Settings of the topology (`acker.ledger.settings.config.TopologyConfig`), each an option.
            With any of them, the first use creates the topology, or compares the settings
            (TopologyConfigError). Without, the topology must exist (UnknownTopology).
        spouts: Options of a spout (`acker.streams.SpoutOptions`), each an option.
        subscription_named: True if `subscription` is given.
    """

    url: str = text(MISSING, "`redis://`, `rediss://`, `unix://`", "The store.", shown=False)
    topology: str = text(MISSING, "name", "The topology.")
    stream: str = text(MISSING, "name", "The stream: 1 to 64 of `A-Z a-z 0-9 . _ -`.")
    subscription: str = text(
        DEFAULT, "name", "The subscription to read. Each subscription of a stream gets all segments; queries "
        "that share a subscription get each segment once."
    )  # fmt: skip
    subscription_named: bool = False
    cluster: bool = flag(False, "True if `url` is a node of a Redis Cluster.")
    timeout: float = number(10.0, *TIMEOUTS, "Seconds until `StoreUnavailable`.")
    enabled: bool = flag(
        True, "false turns acker off, as `ACKER_OFF=1` does: bolts and `track` work without a store, and "
        "streams are refused."
    )  # fmt: skip
    observe: bool = flag(
        False, "True only records: nothing fails or waits for the store's sake, and nothing is replayed.",
        uses=(TRACK, STEP)
    )  # fmt: skip
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
        False, "True also reads rows whose trees are all over, which are otherwise dropped and counted.",
        uses=(READ,)
    )  # fmt: skip
    requests: bool = flag(
        False, "True also reads a row for each request of a stream that gathers: see "
        "`acker.spark.gathered`.", uses=(READ,)
    )  # fmt: skip
    fair_by: str = text(
        "", "column", "The stream is read fairly by that column, `_acker` for the trees: a writer of "
        "many rows does not delay others. Goes with a `max_rows`, which batches share.",
        uses=(READ,)
    )  # fmt: skip
    schema_timeout: float = number(
        0.0, 0.0, 86400.0, "Seconds to wait for the first write of a stream whose schema is not known yet."
    )
    segment_rows: int = number(
        SEGMENT_ROWS, 1, LARGEST_SEGMENT, "Most rows of a segment that is written; it has at most 16 MiB of "
        "them, before compression."
    )  # fmt: skip
    compression: str = choice(COMPRESSIONS, "The compression of written segments.")
    staging_ttl: int = number(
        STAGING_TTL, 1, 7 * 86400, "Seconds that staged rows wait for their commit: more than a batch takes."
    )
    stream_max_age: float | None = number(
        None, 1.0, LONGEST_AGE, "Sets the seconds for which the stream keeps unacked rows, at first 7 days. "
        "Older segments are dropped, and their trees expire.", uses=(WRITE,)
    )  # fmt: skip
    stream_max_bytes: int | None = number(
        None, 1, 10**15, "Sets the bytes of unacked rows that it keeps, at first 16 GiB.", uses=(WRITE,)
    )
    anchored: bool = flag(
        True, "false: a streaming query may write rows without anchors, though it has read rows with trees.",
        uses=(WRITE,)
    )  # fmt: skip
    run: str = text(
        "", "name", "The name of a batch write: a second write of that name to the stream writes nothing, "
        "for 29 days.", uses=(BATCH_WRITE,)
    )  # fmt: skip
    stateless: bool = flag(
        False,
        "True declares that the query has no operator with state over its trees, if Spark does not tell.",
    )
    message_id: str = text(
        "", "column", "Writes as a spout: each row is a tree of its own, with that name.", uses=(WRITE, TRACK)
    )
    spout: str = text("", "name", "The spout's name; without, the stream's.")
    after_loss: str = choice(
        ("stop", "go on"), "A spout's query ends with `StoreLost` if the store has lost its data, or goes on "
        "without the rows that waited there."
    )  # fmt: skip

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Parses options of Spark's; a ValidationError names the option and the expected values."""
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
        """Raises ValidationError if an option was given that is only for another use."""
        for name, one in OPTIONS.items():
            if one.uses and getattr(self, name) != one.default and not set(one.uses).intersection(uses):
                raise ValidationError(f"option {name}: only for {' and '.join(one.uses)}")

    def ledger(self) -> Ledger:
        """Returns the ledger of the topology, one per process and configuration. Raises UnknownTopology."""
        if self.observe and not self.off:
            return self.observed_ledger()
        if self.off:
            store = Store(self.url, timeout=self.timeout, cluster=self.cluster)
            return off_ledger(store, self.topology, **self.settings)
        try:
            return _ledger(self.url, self.topology, self.cluster, self.timeout, **self.settings)
        except UnknownTopology as error:
            raise UnknownTopology(f"{error}{_UNKNOWN}") from None

    def observed_ledger(self) -> ObservedLedger:
        """Returns a ledger that its first use opens, and that waits for the store for a second at most."""
        timeout = min(self.timeout, PATIENCE)
        key = (self.url, self.cluster, timeout)
        store = _stores.get(key)
        if store is None:
            while len(_stores) >= _MOST_LEDGERS:
                _stores.pop(next(iter(_stores)), None)
            store = _stores[key] = Store(self.url, timeout=timeout, cluster=self.cluster)
        return ObservedLedger(store, self.topology, **self.settings)

    @property
    def off(self) -> bool:
        """True if acker is turned off."""
        return is_off(self.enabled)

    def of_spout(self) -> SpoutOptions | None:
        """Returns the options of the spout that written rows belong to; None if rows do not become roots."""
        if not self.message_id:
            return None
        return SpoutOptions(self.spout or self.stream, self.stream, self.message_id, **self.spouts)

    def staging(self) -> Staging:
        """Returns the options of staging."""
        return Staging(self.stream, self.segment_rows, compression=self.compression, ttl=self.staging_ttl)


_UNKNOWN = (
    ". The first program that names a setting of the topology makes it, as message_timeout=60 does: start"
    " that first. A job that only reads waits for it with the option schema_timeout, in seconds"
)
OPTIONS = settings_of(Options) | SETTINGS | SPOUTS
"""All options, and their possible values."""


def texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Returns keyword arguments as options for Spark, without values of None."""
    return {name: str(value) for name, value in settings.items() if value is not None}


def of_step(stream: str, settings: Mapping[str, object], *uses: str) -> Options:
    """Returns options from keyword arguments of a call that names no stream. Raises ValidationError."""
    if any(name.lower() == "stream" for name in settings):
        raise ValidationError("option stream: only for format('acker')")
    options = Options.parse(texts({**settings, "stream": stream}))
    options.check_use(*uses)
    return options


def ledger_of(url: str, topology: str, settings: Mapping[str, object]) -> Ledger:
    """Returns the ledger of a topology for a call with these keyword arguments. Raises ValidationError."""
    return of_step("any", {"url": url, "topology": topology, **settings}).ledger()


def _ledger(url: str, topology: str, cluster: bool, timeout: float, **settings: Unpack[Settings]) -> Ledger:
    """Returns the ledger of this process, if the topology is unchanged; otherwise a new ledger."""
    key = (url, topology, cluster, timeout, *sorted(settings.items()))
    earlier = _ledgers.get(key)
    store = Store(url, timeout=timeout, cluster=cluster) if earlier is None else earlier.store
    ledger = _ledgers[key] = follow(earlier, store, topology, **settings, create=bool(settings))
    if len(_ledgers) > _MOST_LEDGERS:
        _ledgers.pop(next(iter(_ledgers)), None)
    return ledger


_MOST_LEDGERS = 64
_stores: dict[tuple[object, ...], Store] = {}
"""The stores of observing steps of this process."""
_ledgers: dict[tuple[object, ...], Ledger] = {}
"""The ledgers of this process by store, topology and settings."""
