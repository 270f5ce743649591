"""``fairpremium serve`` and ``fairpremium worker``: the third party's processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.cli._options import split_list
from fairpremium.cli._output import JsonOption, plain, print_facts
from fairpremium.cli._service import (
    FOLDER,
    DatabaseOption,
    FolderOption,
    check_folder,
    database_failed,
    require_service,
)

_LISTEN = "Where to listen"
_PASSWORD = "FAIRPREMIUM_CONSOLE_PASSWORD"
_WithParent = Annotated[bool, typer.Option("--with-parent", help="Stop when standard input closes.")]


def serve(
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=_LISTEN)] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.", rich_help_panel=_LISTEN)
    ] = 8350,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.", rich_help_panel=_LISTEN)] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="Its key, PEM.", rich_help_panel=_LISTEN)] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front does TLS.", rich_help_panel=_LISTEN)
    ] = False,
    names: Annotated[
        str | None,
        typer.Option(
            help="Host names to answer to, such as fair.example:443; all if left out.", rich_help_panel=_LISTEN
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes to start.")] = 1,
    with_parent: _WithParent = False,
    as_json: JsonOption = False,
) -> None:
    """Run the third party's service until it is told to stop (Ctrl-C).

    The folder holds its key, its database and all files, and is made when it does not exist. On another address
    than loopback it wants TLS: a certificate, or a proxy that does it. The console for operator and auditor answers on
    loopback, or elsewhere with the password in FAIRPREMIUM_CONSOLE_PASSWORD.

    Example: fairpremium serve --folder third-party --port 8350
    """
    require_service()
    from sqlalchemy.exc import SQLAlchemyError

    from fairpremium.parties.http import serve as run
    from fairpremium.parties.protocol import read_public_key
    from fairpremium.parties.service import ServiceSettings, stop_with_parent

    check_folder(folder, new=True)
    settings = ServiceSettings(
        folder=folder,
        database=database,
        host=host,
        port=port,
        certificate=None if certificate is None else str(_existing(certificate)),
        certificate_key=None if certificate_key is None else str(_existing(certificate_key)),
        behind_proxy=behind_proxy,
        hosts=tuple(name.lower() for name in split_list(names, "--names") or ()),
        console_password=os.environ.get(_PASSWORD) or None,
    )

    def tell(url: str) -> None:
        public = folder / "service.key.pub"
        result = {
            "service": url,
            "folder": str(folder),
            "database": "PostgreSQL" if database else "SQLite",
            "workers": workers,
            "public_key": read_public_key(public).public_key,
            "public_key_file": str(public),
        }
        _say(result, as_json)

    if with_parent:
        stop_with_parent()
    try:
        run(settings, workers=workers, tell=tell)
    except SQLAlchemyError as error:
        raise database_failed(error) from None


def worker(
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when no fit is waiting.")] = False,
    with_parent: _WithParent = False,
    as_json: JsonOption = False,
) -> None:
    """Do the fits of a service until told to stop (Ctrl-C): one more worker beside those of serve.

    A fit that is interrupted waits for another worker.

    Example: fairpremium worker --folder third-party
    """
    require_service()
    from sqlalchemy.exc import SQLAlchemyError

    from fairpremium.parties.service import stop_with_parent, work

    check_folder(folder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if with_parent:
        stop_with_parent()
    elif not once:
        _say({"worker": os.getpid(), "folder": str(folder)}, as_json)
    try:
        work(folder, database=database, stop=stop.is_set, once=once)
    except SQLAlchemyError as error:
        raise database_failed(error) from None


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    return path


def _say(result: dict[str, Any], as_json: bool) -> None:
    """Print at once: whoever started this process may wait for it."""
    if as_json:
        print(json.dumps(plain(result)))
    else:
        print_facts({name.replace("_", " ").capitalize(): value for name, value in result.items()})
        print("Stop it with Ctrl-C.")
    sys.stdout.flush()
