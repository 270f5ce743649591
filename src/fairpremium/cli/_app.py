"""The application: its commands, its version, and one line for a user's mistake."""

import atexit
import gc
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
from fairpremium.lazy import defer_module

# Recent versions of Typer carry a copy of click; this is the base of usage errors in all of them.
_UsageError: Any = typer.BadParameter.__base__
_MISTAKES = (FairPremiumError, ValueError, TypeError, OverflowError, OSError, sqlite3.OperationalError)

_NEW_OBJECTS = 100_000  # before Python looks for garbage; 700 by default
_LASTING = {"serve", "worker"}


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


# The module of each command and the first sentence of its help, in the order of the list of commands.
_COMMANDS = {
    "privatize": ("_privatize", "Replace a sensitive attribute by noisy reports of it."),
    "fit": ("_fit", "Learn discrimination-free prices from losses, features and noisy reports."),
    "price": ("_price", "Compute premiums with confidence limits, in the order of the rows."),
    "tariff": ("_tariff", "Write the multiplicative tariff that is closest to the discrimination-free premium."),
    "audit": ("_audit", "Audit a price list of any origin from noisy reports alone: who pays what, and is it fair?"),
    "spectrum": (
        "comparison._spectrum",
        "Compute the spectrum of fair prices: best estimate, unaware, aware, hyperaware and corrective.",
    ),
    "alternatives": (
        "comparison._alternatives",
        "Search for less discriminatory alternatives: tariffs compared by accuracy and disparity.",
    ),
    "monitor": (
        "governance._monitor",
        "Watch the prices of groups over renewals, from reports, with few false alarms however often you look.",
    ),
    "card": (
        "governance._documents",
        "Write the model card of a model: purpose, data, method, accuracy, fairness, privacy, limits, hashes.",
    ),
    "record": (
        "governance._documents",
        "Write the record of a model that supervisors ask for, under the headings of EIOPA.",
    ),
    "plan": ("_plan", "Compute what a channel costs in rows and precision, before anybody is asked."),
    "demo": ("parties._demo", "Run all three parties on this machine, and compare the premiums with the truth."),
    "reproduce": ("_reproduce", "Run the paper's experiments; draw every figure, judge every statement."),
    "serve": ("parties._serve", "Run the third party's service until it is told to stop (Ctrl-C)."),
    "worker": (
        "parties._serve",
        "Do the fits of a service until told to stop (Ctrl-C): one more worker beside those of serve.",
    ),
    "backup": ("parties._backup", "Copy a third party's folder and database while it runs: a folder of one moment."),
    "restore": ("parties._backup", "Restore a backup into a fresh place, and check it and its log."),
    "keys": ("parties._keys", "The keys that parties sign with, and the secret that names policies."),
    "account": ("parties._console_accounts", "Accounts for the console: one for each person, with a role."),
    "study": ("parties._study", "Studies: what is learned about which groups, by whom, under which rules."),
    "collector": ("parties._collector", "The collector's side: reports leave, the attribute stays."),
    "insurer": ("parties._insurer", "The insurer's side: features and losses leave, premiums come back."),
    "log": ("parties._log", "The log of the service: read it, and check that nobody changed it."),
}


def make_app(names: Iterable[str] = tuple(_COMMANDS)) -> typer.Typer:
    """Return the application with some of its commands; others are not even imported."""
    app = _empty_app()
    for name in names:
        command = getattr(import_module(f"fairpremium.cli.{_COMMANDS[name][0]}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, help=help_of(command))(command)
    return app


def _list_app() -> typer.Typer:
    """Return the application for the list of commands and for what is none of them, without loading any."""
    app = _empty_app()
    for name, (_, sentence) in _COMMANDS.items():
        app.command(name, help=sentence)(lambda: None)
    return app


def _empty_app() -> typer.Typer:
    app = typer.Typer(
        name="fairpremium",
        cls=_OneLineErrors,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback(invoke_without_command=True)(_main)
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
    _collect_seldom(lasts=bool({*named} & _LASTING))
    defer_module("scipy.stats")  # scikit-learn imports it for one function that no command uses
    app = make_app(named) if named and named[0] in _COMMANDS else _list_app()
    typer.main.get_command(app).main(prog_name="fairpremium")
    raise AssertionError("unreachable: the group exits")


def _collect_seldom(*, lasts: bool) -> None:
    """Let Python look for garbage less often, and not at the end: loading modules makes many objects and no garbage.

    A service that `lasts` looks as usual: what strangers send must not grow in its memory.
    """
    if not lasts:
        gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)
