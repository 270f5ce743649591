"""The application: its commands, its version, and one line for a user's mistake."""

from __future__ import annotations

import sqlite3
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from fairpremium import __version__
from fairpremium.cli._audit import audit
from fairpremium.cli._collector import collector
from fairpremium.cli._demo import demo
from fairpremium.cli._fit import fit
from fairpremium.cli._group import help_of
from fairpremium.cli._insurer import insurer
from fairpremium.cli._keys import keys
from fairpremium.cli._log import log
from fairpremium.cli._plan import plan
from fairpremium.cli._price import price
from fairpremium.cli._privatize import privatize
from fairpremium.cli._reproduce import reproduce
from fairpremium.cli._serve import serve, worker
from fairpremium.cli._study import study
from fairpremium.errors import FairPremiumError

# Recent versions of Typer carry a copy of click; this is the base of usage errors in all of them.
_UsageError: Any = typer.BadParameter.__base__
_MISTAKES = (FairPremiumError, ValueError, TypeError, OverflowError, OSError, sqlite3.OperationalError)
_USAGE_EXIT_CODE = 2


class _OneLineErrors(TyperGroup):
    """A group of commands that answers a user's mistake with one line on stderr and exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            except _UsageError as error:
                _fail(error.format_message())
            except typer.Abort:
                _fail("Aborted.", code=1)
            except OSError as error:
                _fail(_describe(error))
            except _MISTAKES as error:
                _fail(str(error))
        sys.exit(code if isinstance(code, int) else 0)


def _describe(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}."


def _fail(message: str, code: int = _USAGE_EXIT_CODE) -> NoReturn:
    print(f"Error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"Warning: {' '.join(str(message).split())}", file=sys.stderr)


app = typer.Typer(
    name="fairpremium",
    cls=_OneLineErrors,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fairpremium {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
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


for _command in (privatize, fit, price, audit, plan, demo, reproduce, serve, worker):
    app.command(help=help_of(_command))(_command)
for _name, _group in {"keys": keys, "study": study, "collector": collector, "insurer": insurer, "log": log}.items():
    app.add_typer(_group, name=_name)


def run() -> NoReturn:
    """Run the application with the arguments of this process."""
    typer.main.get_command(app).main(prog_name="fairpremium")
    raise AssertionError("unreachable: the group exits")
