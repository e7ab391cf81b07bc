"""What tests share with tests/conftest.py."""

from collections.abc import Callable

from acker.embedded import EmbeddedServer

NewServer = Callable[..., EmbeddedServer]
