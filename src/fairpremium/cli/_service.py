"""What the commands of the parties share: where the service is, who asks, and the third party's folder."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from fairpremium.errors import MissingExtraError

if TYPE_CHECKING:
    from fairpremium.parties.clients import Client
    from fairpremium.parties.protocol import Message, VerifyKey
    from fairpremium.parties.service import ThirdParty

    C = TypeVar("C", bound=Client)
    M = TypeVar("M", bound=Message)

_NEEDED = ("fastapi", "uvicorn", "httpx", "sqlalchemy", "cryptography", "pydantic", "jinja2")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_WHERE = "Service"

ServiceOption = Annotated[
    str,
    typer.Option("--service", envvar="FAIRPREMIUM_SERVICE", help="Address of the service.", rich_help_panel=_WHERE),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key", envvar="FAIRPREMIUM_KEY", help="File with your party's key.", rich_help_panel=_WHERE),
]
FolderOption = Annotated[Path, typer.Option(help="Folder of the third party.", rich_help_panel=_WHERE)]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="FAIRPREMIUM_DATABASE",
        help="Address of a PostgreSQL database; without it a file in the folder.",
        show_default=False,
        rich_help_panel=_WHERE,
    ),
]
StudyOption = Annotated[str, typer.Option(help="Id of the study.")]
SecretOption = Annotated[
    Path,
    typer.Option(
        envvar="FAIRPREMIUM_SECRET", help="File with the study's secret, the same for collectors and insurers."
    ),
]
TrustOption = Annotated[
    list[Path], typer.Option(help="Public key of the service, as its operator gave it to you; may be repeated.")
]
SERVICE = "http://127.0.0.1:8350"
FOLDER = Path("third-party")


def require_service() -> None:
    """Raise if the extra of the service is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"This command needs {', '.join(missing)}. Install what the parties use with: "
            'pip install "fairpremium[service]"'
        )


def connect(kind: type[C], service: str, key: Path | None) -> C:
    """Return a party's connection to the service."""
    from fairpremium.parties.protocol import read_key

    address = urlsplit(service)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"Got --service {service!r}, but expected an address such as {SERVICE}.")
    if address.scheme == "http" and address.hostname not in _LOCAL:
        warnings.warn(f"{service} is not encrypted: others on the way can read what is sent.", stacklevel=2)
    if key is None:
        raise ValueError(
            "Say who asks: --key with the file of your party's key, or FAIRPREMIUM_KEY. "
            "`fairpremium keys new` makes one."
        )
    return kind(service, read_key(key))


def check_ids(**ids: str | None) -> None:
    """Raise if an id is not one, before it becomes part of an address."""
    from fairpremium.parties.protocol import check_id

    for name, value in ids.items():
        try:
            check_id(value or "")
        except ValueError as error:
            raise ValueError(f"Got {value!r} as the id of a {name}, but {error}.") from None


def read_trusted(paths: list[Path]) -> list[VerifyKey]:
    """Read the public keys to trust."""
    from fairpremium.parties.protocol import read_public_key

    return [read_public_key(path) for path in paths]


@contextmanager
def third_party(folder: Path, database: str | None, *, new: bool = False) -> Iterator[ThirdParty]:
    """Open the third party's folder for a command, which exists unless it may be new."""
    from sqlalchemy.exc import SQLAlchemyError

    from fairpremium.parties.service import ThirdParty

    check_folder(folder, new=new)
    try:
        party = ThirdParty(folder, database=database)
        try:
            yield party
        finally:
            party.close()
    except SQLAlchemyError as error:  # its message may hold the address
        raise database_failed(error) from None


def check_folder(folder: Path, *, new: bool = False) -> None:
    """Raise if a folder is not that of a third party, before anything is made in it."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but expected the folder of a third party.")
    if not new and not (folder / "service.key").exists():
        raise ValueError(
            f"There is no third party in {folder}. Name its folder with --folder; `fairpremium serve` makes a new one."
        )


def database_failed(error: Exception) -> ValueError:
    """Return what may be said about a database that does not work."""
    kind = type(getattr(error, "orig", None) or error).__name__
    return ValueError(
        f"The database cannot be used ({kind}). Is it running, is its address right, and may this user write there?"
    )


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
