"""Streams between jobs, for Python processes without Spark: needs pyarrow (extra `spark`)."""

from acker.streams.batch import Batch
from acker.streams.log.segments import Segment
from acker.streams.reader import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.stream import Stream
from acker.streams.writer import StreamWriter

__all__ = ["Batch", "Segment", "SpoutOptions", "Stream", "StreamReader", "StreamSpout", "StreamWriter"]
