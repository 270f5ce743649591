"""The application: its commands, its version, and one line for a user's mistake."""

import sqlite3
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from fairpremium import __version__
from fairpremium.cli._command import help_of
from fairpremium.errors import FairPremiumError

# Recent versions of Typer carry a copy of click; this is the base of usage errors in all of them.
_UsageError: Any = typer.BadParameter.__base__
_MISTAKES = (FairPremiumError, ValueError, TypeError, OverflowError, OSError, sqlite3.OperationalError)


class _OneLineErrors(TyperGroup):
    """A group of commands that answers a user's mistake with one line on stderr and exit code 2."""

    def main(self, *arguments: Any, **settings: Any) -> NoReturn:
        settings["standalone_mode"] = False
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                code = super().main(*arguments, **settings)
            except _UsageError as error:
                _fail(error.format_message())
            except typer.Abort:
                _fail("Aborted.", code=1)
            except OSError as error:
                named = error.filename is not None and error.strerror is not None
                _fail(f"{error.filename}: {error.strerror}." if named else str(error))
            except _MISTAKES as error:
                _fail(str(error))
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"Error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"Warning: {' '.join(str(message).split())}", file=sys.stderr)


# The module of each command, in the order of the help; a group of commands is a Typer.
_MODULES = {
    "privatize": "_privatize",
    "fit": "_fit",
    "price": "_price",
    "tariff": "_tariff",
    "audit": "_audit",
    "plan": "_plan",
    "demo": "parties._demo",
    "reproduce": "_reproduce",
    "serve": "parties._serve",
    "worker": "parties._serve",
    "keys": "parties._keys",
    "study": "parties._study",
    "collector": "parties._collector",
    "insurer": "parties._insurer",
    "log": "parties._log",
}


def make_app(names: Iterable[str] = tuple(_MODULES)) -> typer.Typer:
    """Return the application with some of its commands; others are not even imported."""
    app = typer.Typer(
        name="fairpremium",
        cls=_OneLineErrors,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback(invoke_without_command=True)(_main)
    for name in names:
        command = getattr(import_module(f"fairpremium.cli.{_MODULES[name]}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, help=help_of(command))(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fairpremium {__version__}")
        raise typer.Exit


def _main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and stop."),
    ] = False,
) -> None:
    """Insurance premiums without discrimination, from sensitive attributes that nobody sees.

    Start with: fairpremium demo
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def run() -> NoReturn:
    """Run the application with the arguments of this process; one command is loaded where one is named."""
    named = sys.argv[1:2]
    app = make_app(named) if named and named[0] in _MODULES else make_app()
    typer.main.get_command(app).main(prog_name="fairpremium")
    raise AssertionError("unreachable: the group exits")
