"""A fault under way."""

from collections.abc import Callable

HOUR = 3600.0


class NoEffect(Exception):
    """The fault cannot take effect now, for the reason given: it is to be tried again later."""


class Injected:
    """A fault under way.

    end: undoes it; False: not yet, ask again. took: whether it has taken effect: something that the pipeline
    did went wrong by it. It may be asked any number of times, before and after the end; raises NoEffect where
    there is nothing left to take it.
    """

    def __init__(
        self, end: Callable[[], bool] = lambda: True, took: Callable[[], bool] = lambda: True
    ) -> None:
        self.end = end
        self.took = took
