"""What the commands of the parties share: where the service is, who asks, and the third party's folder."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from fairpremium.cli._command import Answer, command, option_panel
from fairpremium.errors import MissingExtraError

if TYPE_CHECKING:
    from fairpremium.parties.clients import Client
    from fairpremium.parties.protocol import KeyChain, Message
    from fairpremium.parties.service import ThirdParty

    C = TypeVar("C", bound=Client)
    M = TypeVar("M", bound=Message)

_NEEDED = (
    "fastapi", "uvicorn", "httpx", "sqlalchemy", "cryptography", "argon2", "pydantic", "jinja2", "prometheus_client",
)  # fmt: skip
_LOCAL = ("localhost", "127.0.0.1", "::1")
_SERVICE = "http://127.0.0.1:8350"
_option = option_panel("Service")

StudyOption = Annotated[str, typer.Option(help="Id of the study.")]
AuthorityOption = Annotated[
    Path | None,
    _option(
        "--authority",
        envvar="FAIRPREMIUM_AUTHORITY",
        help="Certificates (PEM) of the authorities that may vouch for an https service; the public ones if left out.",
    ),
]
SecretOption = Annotated[
    Path,
    typer.Option(
        envvar="FAIRPREMIUM_SECRET", help="File with the study's secret, the same for collectors and insurers."
    ),
]


def party_command(function: Callable[..., Answer | None]) -> Callable[..., None]:
    """Make a command that needs the extra of the service."""
    return command(function, before=_prepare)


def _prepare() -> None:
    require_service()
    os.umask(0o077)  # reports, ledgers and bundles are for their owner


def require_service() -> None:
    """Raise if the extra of the service is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"This command needs {', '.join(missing)}. Install what the parties use with: "
            'pip install "fairpremium[service]"'
        )


def iso_time(seconds: float | None) -> str | None:
    """Write a time as text, in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Connection:
    """The options that say where the service is and who asks."""

    service: Annotated[str, _option("--service", envvar="FAIRPREMIUM_SERVICE", help="Address of the service.")] = (
        _SERVICE
    )
    key: Annotated[Path | None, _option("--key", envvar="FAIRPREMIUM_KEY", help="File with your party's key.")] = None
    authority: AuthorityOption = None

    def open(self, kind: type[C]) -> C:
        """Return a party's connection to the service."""
        from fairpremium.parties.protocol import read_key

        check_address(self.service)
        if self.key is None:
            raise ValueError(
                "Say who asks: --key with the file of your party's key, or FAIRPREMIUM_KEY. "
                "`fairpremium keys new` makes one."
            )
        return kind(self.service, read_key(self.key), authority=self.authority)


def check_address(service: str) -> None:
    """Raise if this is no address of a service, and warn if it is not encrypted."""
    address = urlsplit(service)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"Got --service {service!r}, but expected an address such as {_SERVICE}.")
    if address.scheme == "http" and address.hostname not in _LOCAL:
        warnings.warn(f"{service} is not encrypted: others on the way can read what is sent.", stacklevel=2)


@dataclass(frozen=True)
class ServiceFolder:
    """The options that say where the third party's files and database are."""

    folder: Annotated[Path, _option(help="Folder of the third party.")] = Path("third-party")
    database: Annotated[
        str | None,
        _option(
            envvar="FAIRPREMIUM_DATABASE",
            help="Address of a PostgreSQL database; without it a file in the folder.",
            show_default=False,
        ),
    ] = None

    @contextmanager
    def open(self, *, new: bool = False) -> Iterator[ThirdParty]:
        """Open the third party, whose folder exists unless it may be new."""
        from fairpremium.parties.service import ThirdParty

        with self.ready(new=new):
            party = ThirdParty(self.folder, database=self.database)
            try:
                yield party
            finally:
                party.close()

    @contextmanager
    def ready(self, *, new: bool = False) -> Iterator[None]:
        """Raise if the folder is not that of a third party or, later, if the database does not work."""
        from sqlalchemy.exc import SQLAlchemyError

        from fairpremium.parties.protocol import Problem
        from fairpremium.parties.store import is_full_disk

        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file, but expected the folder of a third party.")
        if not new and not (self.folder / "service.key").exists():
            raise ValueError(
                f"There is no third party in {self.folder}. Name its folder with --folder; `fairpremium serve` makes a "
                "new one."
            )
        try:
            yield
        except (SQLAlchemyError, OSError, Problem) as error:  # the message of the first may hold the address
            if is_full_disk(error):
                raise ValueError(
                    f"There is no room on the disk of {self.folder} or of its database. Make room."
                ) from None
            if not isinstance(error, SQLAlchemyError):
                raise
            kind = type(getattr(error, "orig", None) or error).__name__
            raise ValueError(
                f"The database cannot be used ({kind}). Is it running, is its address right, and may this user write "
                "there?"
            ) from None


@dataclass(frozen=True)
class TrustedKeys:
    """The option that names the public keys of the service."""

    trust: Annotated[
        list[Path], typer.Option(help="Public key of the service, as its operator gave it to you; may be repeated.")
    ]

    def read(self) -> list[KeyChain]:
        """Read the public keys to trust."""
        from fairpremium.parties.protocol import read_trusted_keys

        return [read_trusted_keys(path) for path in self.trust]


def check_ids(**ids: str | None) -> None:
    """Raise if an id is not one, before it becomes part of an address."""
    from fairpremium.parties.protocol import check_id

    for name, value in ids.items():
        try:
            check_id(value or "")
        except ValueError as error:
            raise ValueError(f"Got {value!r} as the id of a {name}, but {error}.") from None


def make_message(kind: type[M], fields: dict[str, Any] | str | bytes, source: str = "") -> M:
    """Return a message of fields as JSON has them, or say in one line what is wrong with the first of them."""
    from pydantic import ValidationError

    try:
        return kind.model_validate_json(fields if isinstance(fields, str | bytes) else json.dumps(fields))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(place) for place in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        start = f"{source}: " if source else ""
        raise ValueError(f"{start}{where + ': ' if where else ''}{what}.".replace("..", ".")) from None


def message_fields(message: Message) -> dict[str, Any]:
    """Return the fields of a message as JSON has them."""
    return dict(json.loads(message.model_dump_json()))
