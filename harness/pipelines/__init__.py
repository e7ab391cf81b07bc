"""Random pipelines on real Spark, and a verdict: is every record that was reported acked in the sink?

`python -m harness.pipelines --seed 1 --minutes 5`; `harness/README.md` tells of it, and of what was found.
"""
