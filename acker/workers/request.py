"""Requests, as a step that gathers is given them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as a step that gathers is given it. id: the same in all steps of its line. task: from 0."""

    id: int
    task: int
