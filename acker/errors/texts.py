"""Texts of users' objects and values, for errors and logs."""

from threading import current_thread, main_thread

_LONGEST_TEXT, _LONGEST_NAME = 4_096, 100


def is_interrupt(error: BaseException) -> bool:
    """Return True for Ctrl-C, which handlers of user code's errors let through; False in other threads."""
    return issubclass(type(error), KeyboardInterrupt) and current_thread() is main_thread()


def text_of(value: object) -> str:
    """The text of a user's object, up to 4,096 characters; "" if the object gives none.

    It, `class_name` and `shown` take all texts of users: a `__str__` may raise or return anything.
    """
    try:
        return _plain(str(value), _LONGEST_TEXT)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return ""


def class_name(value: object) -> str:
    """The name of an object's class, also where the class gives itself another."""
    return _plain(type.__dict__["__name__"].__get__(type(value)), _LONGEST_NAME)


def shown(value: object) -> str:
    """A value for an error message, cut to 120 characters, even if its `__repr__` raises."""
    try:
        text = _plain(repr(value[:100] if isinstance(value, str | bytes) else value), _LONGEST_TEXT)
    except BaseException as error:
        if is_interrupt(error):
            raise
        text = f"<{class_name(value)} that cannot be shown: {class_name(error)}>"
    return text if len(text) <= 120 else text[:117] + "..."


def _plain(text: str, most: int) -> str:
    """Text as a plain str of whole characters: a subclass of str may do anything."""
    return str.__getitem__(text, slice(most)).encode("utf-8", "replace").decode()
