"""The main job on real text: `acker demo`.

`jobs.py` is the spout and the two Spark applications, to be copied from. All else runs and checks them.
"""
