"""The type of the fixture that starts servers."""

from collections.abc import Callable

from acker.embedded import EmbeddedServer

NewServer = Callable[..., EmbeddedServer]
