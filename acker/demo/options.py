"""What the demo can be asked for, and what it does when it is asked for nothing."""

from dataclasses import dataclass, field

from acker.demo.faults import Faults
from acker.ledger.config import Settings, check_name, check_number, check_settings

LINES = 20_000
"""Lines by default: enough to see it all, within a minute."""
MAX_SPOUT_PENDING = 50_000
MESSAGE_TIMEOUT = 120.0
ATTEMPTS = 3
"""Trees that a record gets at most."""
BILLION = 10**9


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo is asked for; ValidationError where that can't be.

    url: the store; None starts the embedded server. topology: its name, which must not be there yet; None
    makes one. inputs: files and directories; none: the standard library. lines: how many are read; 0: all.
    settings: those of the topology (`acker.ledger.config.TopologyConfig`). port: of the dashboard; 0: a free
    one.
    """

    url: str | None = field(default=None, repr=False)
    topology: str | None = None
    inputs: tuple[str, ...] = ()
    lines: int = LINES
    max_spout_pending: int = MAX_SPOUT_PENDING
    settings: Settings = field(default_factory=lambda: Settings(message_timeout=MESSAGE_TIMEOUT))
    port: int = 0
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        if self.topology is not None:
            check_name(self.topology, "--topology")
        check_settings(self.settings)
        check_number(self.lines, "--lines", 0, BILLION, int)
        check_number(self.max_spout_pending, "--max-spout-pending", 1, BILLION, int)
        check_number(self.port, "--port", 0, 65_535, int)
        check_number(self.faults.poison_every, "--poison-every", 0, BILLION, int)
