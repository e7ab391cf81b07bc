"""Requests that a gathering step works on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """A request and a task of a gathering step.

    Attributes:
        id: The id of the request, the same in all steps of its line.
        task: The number of the task, from 0.
    """

    id: int
    task: int
