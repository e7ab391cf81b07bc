"""The server and the Java that come along."""

from acker.embedded.java import ensure_java
from acker.embedded.server import EmbeddedServer, embedded_binary

__all__ = ["EmbeddedServer", "embedded_binary", "ensure_java"]
