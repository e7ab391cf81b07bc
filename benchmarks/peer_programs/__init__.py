"""Programs of benchmarks/peers.py: one for each peer, all called in the same way.

    PROGRAM enqueue URL DIRECTORY PARENTS CHILDREN WORKERS      prints the seconds that it took
    PROGRAM work    URL DIRECTORY PARENTS CHILDREN WORKERS      runs until it is ended

DIRECTORY is where work leaves its marks (marks.py). The programs of other projects have their
dependencies in their head, at fixed versions, and import nothing of acker.
"""
