"""Streams between jobs, for Python processes without Spark: needs pyarrow (extra `spark`)."""

from acker.streams.reader import StreamReader
from acker.streams.segments import Segment
from acker.streams.spouts.options import SpoutOptions
from acker.streams.spouts.spout import StreamSpout
from acker.streams.stream import Stream
from acker.streams.writer import Batch, StreamWriter

__all__ = ["Batch", "Segment", "SpoutOptions", "Stream", "StreamReader", "StreamSpout", "StreamWriter"]
