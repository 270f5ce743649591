"""Commands that belong together under one name, such as ``fairpremium keys new``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer


def help_of(command: Callable[..., Any]) -> str:
    """Return a docstring with every paragraph on one line, so that it wraps at the reader's width."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def make_group(sentence: str, commands: dict[str, Callable[..., Any]]) -> typer.Typer:
    """Return a group of commands that explains itself when it is called alone.

    Parameters
    ----------
    sentence : str
        What the commands are for.
    commands : dict
        The commands by name, in order.
    """
    group = typer.Typer(help=sentence, add_completion=False)

    @group.callback(invoke_without_command=True)
    def _explain(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    for name, command in commands.items():
        group.command(name, help=help_of(command))(command)
    return group
