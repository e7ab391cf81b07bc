"""Functions of a batch for `bolt`: a function that cannot do its work is refused, not acked."""

import inspect
from collections.abc import Callable

from acker.errors import AckerError, ValidationError, class_name, shown, text_of
from acker.ledger.settings.config import check_name
from acker.ledger.user_functions.undone import undone

USE = "@bolt(url=..., topology=..., name=...)"


def check_given(given: tuple[object, ...], settings: dict[str, object]) -> None:
    """Raises ValidationError if `bolt` lacks a keyword argument that it needs."""
    if given:
        what = "a function" if callable(given[0]) else shown(given[0])
        raise ValidationError(f"bolt: expected {USE} above a function, got {what} in place of url=")
    missing = [name for name in ("url", "topology", "name") if not settings.get(name)]
    if missing:
        raise ValidationError(f"bolt: expected {USE} above a function, got no {', '.join(missing)}")


def check_function(given: tuple[object, ...]) -> Callable[..., object]:
    """Returns the only given function; raises ValidationError if it cannot take a batch and a collector."""
    if len(given) != 1 or not callable(given[0]):
        raise ValidationError(
            f"bolt: expected one function of a batch and a collector, got {len(given)} arguments: write "
            f"{USE} above the function, and give the function to foreachBatch"
        )
    function: Callable[..., object] = given[0]
    if _returns_at_once(function):
        raise ValidationError(
            "bolt: expected a function that works on its batch when it is called, got a function that is "
            f"`async def` or has a `yield`: {_name(function)}"
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise ValidationError(
            f"bolt: expected a function of two arguments, a batch and a collector, got {_name(function)}"
            f"{inspect.signature(function)}"
        ) from None
    except ValueError:  # a builtin has no signature
        pass
    return function


def check_receives(stream: object) -> str:
    """Returns the external stream that a bolt receives, or "". Raises ValidationError."""
    return "" if stream is None else check_name(stream, "receives")


def call(function: Callable[..., object], name: str, batch: object, collector: object) -> None:
    """Calls a bolt's function. Raises its exception, and AckerError if its work is not done.

    A BaseException that is no Exception would end the thread in which Spark calls, and the query would hang.
    """
    try:
        kind = undone(function(batch, collector))
    except Exception:
        raise
    except BaseException as error:
        raise AckerError(
            f"bolt {name!r} has raised {class_name(error)}({text_of(error)}): its query ends, and nothing of "
            "the batch is committed. To fail the batch's records, raise FailedException"
        ) from error
    if kind:
        raise AckerError(
            f"the function of a bolt has returned {kind}, so its work is not done, and the "
            "batch is not acked: run it in the function, and wait there for what it starts"
        )


def _returns_at_once(function: Callable[..., object]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is `async def`
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(kind(one) for kind in kinds for one in (function, call))


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", shown(function))


def check_called(batch: object, number: object) -> None:
    """Raises AckerError if the arguments of a bolt are not a batch and its number, as Spark passes them."""
    if not isinstance(number, int):
        raise AckerError(
            "a bolt is a function for DataStreamWriter.foreachBatch, which calls it with a batch and its "
            f"number, got {type(batch).__name__} and {type(number).__name__}; for a batch job there is "
            "acker.spark.job, to try a bolt on some rows acker.testing.run_bolt"
        )
