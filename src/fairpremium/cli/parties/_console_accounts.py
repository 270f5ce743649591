"""``fairpremium account``: who may open the console. For somebody at the third party's machine, without limits."""

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairpremium.cli._command import Answer, make_group
from fairpremium.cli._terminal import new_table, print_table
from fairpremium.cli.parties._service import ServiceFolder, iso_time, party_command

_NameArgument = Annotated[str, typer.Argument(help="Name of the account.")]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(help="File whose first line is the password, - for standard input; without it you type it, twice."),
]


@party_command
def add(
    name: Annotated[str, typer.Argument(help="Name to log in with, such as ada: small letters, digits, . _ -")],
    role: Annotated[
        Literal["operator", "auditor"],
        typer.Option(help="What the person may do: an auditor sees no queue and no storage, and ends own logins only."),
    ],
    folder: ServiceFolder,
    password_file: _PasswordFile = None,
) -> Answer:
    """Make an account for the console. From the first account on, everybody must log in.

    Runs where the third party's folder is; a service that runs takes it up at once.

    Example: fairpremium account add ada --role auditor --folder third-party
    """
    from fairpremium.parties.service import Accounts

    password = _read_password(password_file)
    with folder.open() as service:
        Accounts(service.context).add(name, role, password)
    result = {"account": name, "role": role, "folder": str(folder.folder)}
    return Answer(result, {"Account": f"{name} as {role}", "Folder": folder.folder})


@party_command
def list_accounts(folder: ServiceFolder) -> Answer:
    """List the accounts for the console.

    Example: fairpremium account list --folder third-party
    """
    from fairpremium.parties.service import Accounts

    with folder.open() as service:
        found = Accounts(service.context).list()
    listed = [
        {"account": one.name, "role": one.role, "created": iso_time(one.created), "disabled": iso_time(one.disabled)}
        for one in found
    ]
    return Answer({"accounts": listed}, lambda result: _print_rows(result["accounts"], "No account: account add."))


@party_command
def disable(name: _NameArgument, folder: ServiceFolder) -> Answer:
    """Refuse an account from now on, and end its logins. Its name stays taken, for the log's sake.

    Example: fairpremium account disable ada --folder third-party
    """
    from fairpremium.parties.service import Accounts

    with folder.open() as service:
        Accounts(service.context).disable(name)
    return Answer({"disabled": name}, {"Disabled": name})


@party_command
def password(name: _NameArgument, folder: ServiceFolder, password_file: _PasswordFile = None) -> Answer:
    """Give an account another password, and end its logins.

    Example: fairpremium account password ada --folder third-party
    """
    from fairpremium.parties.service import Accounts

    typed = _read_password(password_file)
    with folder.open() as service:
        Accounts(service.context).set_password(name, typed)
    return Answer({"changed": name}, {"Changed": f"the password of {name}"})


@party_command
def list_logins(folder: ServiceFolder) -> Answer:
    """List the logins to the console that have not ended.

    Example: fairpremium account logins --folder third-party
    """
    from fairpremium.parties.service import Logins

    with folder.open() as service:
        found = Logins(service.context).list()
    listed = [
        {
            **{"login": one.id, "account": one.account, "role": one.role, "address": one.address},
            **{name: iso_time(getattr(one, name)) for name in ("created", "seen", "expires")},
        }
        for one in found
    ]
    return Answer({"logins": listed}, lambda result: _print_rows(result["logins"], "Nobody is logged in."))


@party_command
def end_login(
    login: Annotated[str, typer.Argument(help="Id of the login, as account logins prints it.")], folder: ServiceFolder
) -> Answer:
    """End a login to the console.

    Example: fairpremium account end-login 0123456789ab --folder third-party
    """
    from fairpremium.parties.service import Logins

    with folder.open() as service:
        if not Logins(service.context).end(login):
            raise ValueError(
                "Got an unknown id, but expected that of an open login. They are listed by: account logins."
            )
    return Answer({"ended": login}, {"Ended": login})


def _read_password(path: Path | None) -> str:
    """Read a password from a file or standard input, or let somebody type it twice; never from the command line."""
    if path is not None:
        line = sys.stdin.buffer.readline() if str(path) == "-" else path.read_bytes().partition(b"\n")[0]
        try:
            return line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:  # whose message would show a part of the password
            raise ValueError("Got a password that is not UTF-8, but expected text. Write the file again.") from None
    if not sys.stdin.isatty():
        raise ValueError(
            "Got no terminal to type a password on. Name a file with --password-file, or - for standard input."
        )
    first = getpass("Password: ")
    if getpass("The same again: ") != first:
        raise ValueError("Got two different passwords, but expected the same twice. Nothing was changed.")
    return first


def _print_rows(rows: list[dict[str, Any]], nothing: str) -> None:
    if not rows:
        print(nothing)
        return
    table = new_table()
    for name in rows[0]:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*(str(value or "") for value in row.values()))
    print_table(table)


account = make_group(
    "Accounts for the console: one for each person, with a role.",
    {
        "add": add,
        "list": list_accounts,
        "disable": disable,
        "password": password,
        "logins": list_logins,
        "end-login": end_login,
    },
)
