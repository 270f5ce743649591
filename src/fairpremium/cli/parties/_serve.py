"""``fairpremium serve`` and ``fairpremium worker``: the third party's processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairpremium.cli._command import option_panel, plain
from fairpremium.cli._parsing import split_list
from fairpremium.cli._terminal import print_fields
from fairpremium.cli.parties._service import ServiceFolder, party_command
from fairpremium.cli.tables import require_file

if TYPE_CHECKING:
    from fairpremium.parties.service import LogSettings

_OLD_PASSWORD = "FAIRPREMIUM_CONSOLE_PASSWORD"
_option, _page_option = option_panel("Where to listen"), option_panel("The page for invited people")
_log_option = option_panel("Operations")
_WithParent = Annotated[bool, typer.Option("--with-parent", help="Stop when standard input closes.")]


@dataclass(frozen=True)
class LogOptions:
    """The options that say how the operational log is written."""

    log_format: Annotated[
        Literal["text", "json"],
        _log_option(envvar="FAIRPREMIUM_LOG_FORMAT", help="Lines of the operational log, on standard error."),
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _log_option(envvar="FAIRPREMIUM_LOG_LEVEL", help="Least level of lines that are written."),
    ] = "info"

    @property
    def settings(self) -> LogSettings:
        """Return them for the service."""
        from fairpremium.parties.service import LogSettings

        return LogSettings(self.log_format, self.log_level)


@party_command
def serve(
    folder: ServiceFolder,
    log: LogOptions,
    host: Annotated[str, _option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8350,
    certificate: Annotated[Path | None, _option(help="TLS certificate, PEM.")] = None,
    certificate_key: Annotated[Path | None, _option(help="Its key, PEM.")] = None,
    proxy: Annotated[
        list[str] | None,
        _option(help="Address of a proxy in front that does TLS, the only one that may connect; may be repeated."),
    ] = None,
    names: Annotated[
        str | None,
        _option(help="Host names to answer to, such as fair.example; those of this machine if left out."),
    ] = None,
    collect: Annotated[
        bool, _page_option("--collect", help="Serve the page on which invited people answer, at /collect/.")
    ] = False,
    collect_origin: Annotated[
        list[str] | None,
        _page_option(help="Origin of another web server with the page, such as https://app.example; may be repeated."),
    ] = None,
    metrics_token_file: Annotated[
        Path | None,
        _log_option(
            envvar="FAIRPREMIUM_METRICS_TOKEN_FILE",
            help="File with a token by which a monitoring server may read /metrics.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes to start.")] = 1,
    with_parent: _WithParent = False,
    as_json: bool = False,
) -> None:
    """Run the third party's service until it is told to stop (Ctrl-C).

    The folder holds its key, its database and all files, and is made when it does not exist. On another address
    than loopback it wants TLS: a certificate, or a proxy that does it. The console for operator and auditor answers on
    loopback, or elsewhere to people with an account (`account add`). With --collect, people with a link of
    `collector invite` answer on its page.

    Example: fairpremium serve --folder third-party --port 8350
    """
    from fairpremium.parties.http import serve as run
    from fairpremium.parties.protocol import read_public_key
    from fairpremium.parties.service import ServiceSettings, stop_with_parent

    _refuse_old_password(folder)
    settings = ServiceSettings(
        folder=folder.folder,
        database=folder.database,
        host=host,
        port=port,
        certificate=None if certificate is None else str(require_file(certificate)),
        certificate_key=None if certificate_key is None else str(require_file(certificate_key)),
        proxies=tuple(proxy or ()),
        hosts=tuple(name.lower() for name in split_list(names, "--names") or ()),
        metrics_token=None if metrics_token_file is None else _read_token(metrics_token_file),
        log=log.settings,
        collect=collect,
        collect_origins=tuple(collect_origin or ()),
    )

    def tell(url: str) -> None:
        public = folder.folder / "service.key.pub"
        key = read_public_key(public)
        result = {
            "service": url,
            "folder": str(folder.folder),
            "database": "PostgreSQL" if folder.database else "SQLite",
            "workers": workers,
            "key_id": key.key_id,
            "public_key": key.public_key,
            "public_key_file": str(public),
            **({"page": f"{url}/collect/"} if collect else {}),
        }
        _say(result, as_json)

    with folder.ready(new=True):
        if with_parent:
            stop_with_parent()
        run(settings, workers=workers, tell=tell)


@party_command
def worker(
    folder: ServiceFolder,
    log: LogOptions,
    once: Annotated[bool, typer.Option("--once", help="Stop when no fit is waiting.")] = False,
    with_parent: _WithParent = False,
    as_json: bool = False,
) -> None:
    """Do the fits of a service until told to stop (Ctrl-C): one more worker beside those of serve.

    A fit that is interrupted waits for another worker.

    Example: fairpremium worker --folder third-party
    """
    from fairpremium.parties.service import stop_with_parent, work, write_log

    stop = threading.Event()
    with folder.ready(), write_log(log.settings):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        if with_parent:
            stop_with_parent()
        elif not once:
            _say({"worker": os.getpid(), "folder": str(folder.folder)}, as_json)
        work(folder.folder, database=folder.database, stop=stop.is_set, once=once)


def _refuse_old_password(folder: ServiceFolder) -> None:
    """Refuse the one password that the console had in 0.1: whoever set it believes that it guards the console."""
    if os.environ.get(_OLD_PASSWORD):
        raise ValueError(
            f"Got {_OLD_PASSWORD}, but the console has accounts now. Make one for each person (fairpremium account add "
            f"NAME --role operator --folder {folder.folder}), and remove the variable."
        )


def _read_token(path: Path) -> str:
    """Read the token from a file that only its owner can read."""
    from fairpremium.parties.protocol import read_private

    return read_private(require_file(path)).decode("ascii", errors="replace").strip()


def _say(result: dict[str, Any], as_json: bool) -> None:
    """Print at once: whoever started this process may wait for it."""
    if as_json:
        print(json.dumps(plain(result)))
    else:
        shown = {"fingerprint" if name == "key_id" else name: value for name, value in result.items()}
        print_fields({name: value for name, value in shown.items() if name != "public_key"})
        print("Stop it with Ctrl-C.")
    sys.stdout.flush()
