"""The main job on real text: `acker demo`. Two Spark applications, a spout, a store, and a check of it all.

`split.py` and `count.py` are the Spark applications, written to be copied from; `spout.py` is the source.
"""
