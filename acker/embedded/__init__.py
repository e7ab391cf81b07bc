"""The embedded server and the embedded Java."""

from acker.embedded.java import ensure_java
from acker.embedded.server import EmbeddedServer, embedded_binary

__all__ = ["EmbeddedServer", "embedded_binary", "ensure_java"]
