"""The options of the demo, and their defaults."""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from acker.errors import ValidationError, shown
from acker.ledger.settings.config import Settings, check_name, check_settings
from acker.ledger.settings.settings import check_number

LINES = 20_000
"""Lines by default: enough to see it all, within a minute."""
MAX_SPOUT_PENDING = 50_000
MESSAGE_TIMEOUT = 120.0
ATTEMPTS = 3
"""Trees that a record gets at most."""
FLAKY_WORDS = ("yield", "thread", "deque")
"""Words that fail their record at its first attempt: some 0.4 % of the standard library's lines."""
POISON_EVERY = 2000
"""The default number of records of which one fails at every attempt."""
TRANSPORTS = ("store", "parquet")
"""Ways of the words between the two applications: through the store, or in files; or `KAFKA`."""
KAFKA = "kafka://"
"""Before the address of a broker: through a topic."""
_SERVERS = re.compile(r"[^\s/,:]+:\d{1,5}(,[^\s/,:]+:\d{1,5})*")
BILLION = 10**9


@dataclass(frozen=True, slots=True)
class Faults:
    """The records that "count" fails on purpose (`jobs.reason_to_fail` has the same rule for Spark).

    flaky: words that make a record fail at its first attempt. poison_every: one of so many records always
    fails, chosen by the CRC-32 of its message id; 0 for none.
    """

    flaky: tuple[str, ...] = FLAKY_WORDS
    poison_every: int = POISON_EVERY

    def poisoned(self, message_id: str) -> bool:
        """Return True if a record always fails; a record without words never reaches "count"."""
        return bool(self.poison_every) and zlib.crc32(message_id.encode()) % self.poison_every == 0

    def failures(self, message_id: str, words: Iterable[str], attempts: int) -> int:
        """Returns the number of failures of a record with these words, in at most `attempts` attempts."""
        distinct = set(words)
        if distinct and self.poisoned(message_id):
            return attempts
        return min(1, attempts) if distinct.intersection(self.flaky) else 0

    @classmethod
    def parse(cls, flaky: str, poison_every: int) -> "Faults":
        """From words with commas between them."""
        return cls(tuple(word.strip().lower() for word in flaky.split(",") if word.strip()), poison_every)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the demo; raises ValidationError for invalid ones.

    url: the store; None starts the embedded server. topology: its name, which must not exist yet; None makes
    one. inputs: files and directories; none for the standard library. lines: the number of lines to read; 0
    for all. settings: settings of the topology (`acker.ledger.settings.config.TopologyConfig`). port: the
    port of the dashboard; 0 for a free one. transport: of the words, one of `TRANSPORTS`, or
    `kafka://HOST:PORT`, of several brokers with commas between them.
    """

    url: str | None = field(default=None, repr=False)
    topology: str | None = None
    inputs: tuple[str, ...] = ()
    lines: int = LINES
    max_spout_pending: int = MAX_SPOUT_PENDING
    settings: Settings = field(default_factory=lambda: Settings(message_timeout=MESSAGE_TIMEOUT))
    port: int = 0
    faults: Faults = field(default_factory=Faults)
    transport: str = TRANSPORTS[0]

    def __post_init__(self) -> None:
        if self.topology is not None:
            check_name(self.topology, "--topology")
        if self.transport not in TRANSPORTS and not self.servers:
            known = f"{', '.join(TRANSPORTS)} or {KAFKA}HOST:PORT"
            raise ValidationError(f"--transport: expected {known}, got {shown(self.transport)}")
        check_settings(self.settings)
        check_number(self.lines, "--lines", 0, BILLION, int)
        check_number(self.max_spout_pending, "--max-spout-pending", 1, BILLION, int)
        check_number(self.port, "--port", 0, 65_535, int)
        check_number(self.faults.poison_every, "--poison-every", 0, BILLION, int)

    @property
    def servers(self) -> str:
        """The brokers, as `host:port,host:port`; "" if words do not go by Kafka."""
        servers = self.transport.removeprefix(KAFKA)
        return servers if servers != self.transport and _SERVERS.fullmatch(servers) else ""
