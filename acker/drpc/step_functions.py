"""Functions and classes of steps: a worker must be able to call them."""

import inspect

from acker.errors import ValidationError, shown


def check_given(label: str, given: object, spark: bool) -> None:
    """Raises ValidationError if a step has neither a function, or a class, nor a Spark job; or both."""
    if spark and given is not None:
        raise ValidationError(
            f"{label}: a Spark job carries it out, so expected no function or class, got {shown(given)}"
        )
    if not spark and given is None:
        raise ValidationError(f"{label}: expected a function or a class, or spark=True for a Spark job")


def check_function(label: str, function: object) -> None:
    """Raises ValidationError if a worker could not call a function for its rows."""
    if not callable(function):
        raise ValidationError(f"{label}: expected a function, got {shown(function)}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValidationError(
            f"{label}: expected a function that emits by out.emit, got generator function {shown(function)}"
        )


def check_class(label: str, make: object) -> None:
    """Raises ValidationError if a class of objects that gather lacks a method. None is for a Spark job."""
    for method in ("execute", "finished"):
        if inspect.isclass(make):
            if not callable(getattr(make, method, None)):
                raise ValidationError(f"{label}: expected a class with {method}, got {shown(make)}")
            check_function(f"{label}, {method}", getattr(make, method))
    if make is not None and not callable(make):
        raise ValidationError(f"{label}: expected a class with execute and finished, got {shown(make)}")
