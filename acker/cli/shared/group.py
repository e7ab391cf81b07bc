"""A group of commands: help as wide as the terminal, and shared options before the command as after it.

Terms: an anchor is the number of a tree.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from acker.cli.shared.given import with_given
from acker.cli.shared.statuses import HELP, Status

_WIDTH = {"max_content_width": 1_000}
"""Help is as wide as the terminal is."""
_BEFORE = (("url", "--url"), ("timeout", "--timeout"), ("as_json", "--json"))


class Commands(TyperGroup):
    """Commands, listed with a whole sentence each.

    A shared option that stands before a command is given to that command, whose own parser takes or
    refuses it; so both places mean the same, and the later one wins.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Shows the help where nothing is asked."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(Status.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command, and puts the options that stand before it behind it."""
        name, command, rest = super().resolve_command(ctx, args)
        given: list[str] = []
        for parameter, option in _BEFORE:
            value = ctx.params.get(parameter)
            if value is True:
                given += [option]
            elif value not in (None, False):
                given += [option, str(value)]
        return name, command, [*given, *rest]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands, each with the whole first sentence of its help."""
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _sentence(one.help)) for name, one in known if one is not None])


def _sentence(text: str | None) -> str:
    first, end, _ = " ".join((text or "").split("\n\n")[0].split()).partition(". ")
    return first + end.strip()


def group(text: str, *, completion: bool = False) -> typer.Typer:
    """Returns an empty group of commands with a line of help. completion: it can install the shell's."""
    return typer.Typer(
        help=text,
        cls=Commands,
        epilog=HELP,
        context_settings=_WIDTH,
        add_completion=completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def add(
    app: typer.Typer, name: str, command: Callable[..., Any], *, anchors: bool = False, more: str = ""
) -> None:
    """Adds a command to a group.

    Args:
        app: The group.
        name: The name of the command.
        command: Its function; it returns its exit status, or None for 0.
        anchors: True where an argument may begin with a dash: an anchor is negative as often as not, and a
            message id is any text. What looks like an option and is none is an argument then.
        more: Paragraphs for the end of its help, before the exit statuses.
    """
    settings = {"ignore_unknown_options": True} if anchors else {}
    app.command(name, epilog="\n\n".join(filter(None, (more, HELP))), context_settings=settings)(
        with_given(command)
    )
