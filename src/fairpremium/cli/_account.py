"""The collector's own files: the ledger of what each person has spent, and the key from which all reports are drawn."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairpremium.cli._command import option_panel
from fairpremium.errors import NewDrawError
from fairpremium.privacy import Channel, MemoizedReports, PrivacyLedger

_FOLDER = "FAIRPREMIUM_COLLECTOR"
_LEDGER, _MEMO_KEY = "ledger.sqlite", "memo.key"
_KEY_BYTES = 32
_BEGUN_LATE = "begun after draws of the memo key"  # a receipt of a ledger
_option = option_panel("Account of each person")


@dataclass(frozen=True)
class LedgerOptions:
    """The options that say who the people are, and where is recorded what they have spent."""

    person: Annotated[
        str | None, _option(help="Column that identifies the person, who may have several rows and has one report.")
    ] = None
    ledger: Annotated[
        Path | None,
        _option(help="File that records what each person has spent; ledger.sqlite in the collector's folder."),
    ] = None
    budget: Annotated[float | None, _option(help="Most epsilon a person may spend on an attribute.")] = None
    confirm_new_draw: Annotated[
        bool,
        typer.Option(
            "--confirm-new-draw",
            help="Draw people afresh who have reported before, or may have under another key, and charge them.",
            rich_help_panel="Account of each person",
        ),
    ] = False

    @property
    def ledger_path(self) -> Path:
        """Where the ledger is."""
        return collector_folder() / _LEDGER if self.ledger is None else self.ledger

    def open_ledger(self) -> PrivacyLedger:
        """Open the ledger; a new file if there is none."""
        return PrivacyLedger(self.ledger_path, budget=self.budget)


@dataclass(frozen=True)
class DrawOptions(LedgerOptions):
    """The options of the commands that draw reports here."""

    memo_key: Annotated[
        Path | None,
        _option(help="File with the secret from which all reports are drawn; memo.key in the collector's folder."),
    ] = None

    @property
    def memo_key_path(self) -> Path:
        """Where the secret of the memo is."""
        return collector_folder() / _MEMO_KEY if self.memo_key is None else self.memo_key

    def files_text(self) -> str:
        """Say where ledger and memo key are."""
        if self.ledger is None and self.memo_key is None:
            return f"{_LEDGER} and {_MEMO_KEY} in the collector's folder ({collector_folder()})"
        return f"{self.ledger_path} and {self.memo_key_path}"

    def make_memo(self, channel: Channel, attribute: str, campaign: str | None = None) -> MemoizedReports:
        """Return the memo of a channel and an attribute, with the secret that is stored."""
        secret = _read_memo_key(self.memo_key_path, may_be_new=self.memo_key is None)
        if campaign is None:
            return MemoizedReports(channel, secret, attribute=attribute)
        return MemoizedReports(channel, secret, attribute=attribute, campaign=campaign)

    @contextmanager
    def drawing(self, memo: MemoizedReports, ledger: PrivacyLedger, people: str) -> Iterator[None]:
        """Refuse other draws than before where the ledger was lost; remember those that are made here.

        A new ledger says of each draw that it is the first one. The memo key gives the same reports again if
        attribute, channel, campaign and people are the same; otherwise the draws would be new ones. The ledger
        remembers that it was begun after draws that it does not know.

        - `people`: What names them: a column, or the content of a table in which no column does.
        """
        path = self.memo_key_path.with_name(f"{self.memo_key_path.name}.drawn")
        draws = memo.draw_ids([people], [memo.channel.groups[0]])[0]  # depends on all that reports depend on
        known = path.read_text().split() if path.exists() else []
        this = hashlib.sha256(draws).hexdigest()
        if known and ledger.is_empty():
            ledger.charge_many([], charge_id=_BEGUN_LATE)
        if this not in known and ledger.knows_charge(_BEGUN_LATE) and not self.confirm_new_draw:
            raise NewDrawError(
                f"Got a ledger ({self.ledger_path}) that was begun after {self.memo_key_path} had drawn reports with "
                "another attribute, channel, campaign, column of the person or table. Restore the former ledger, or "
                "repeat the former draws, which cost nothing. If these are other people, accept the charge with "
                "--confirm-new-draw. Nothing was drawn."
            )
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            yield
            if this not in known:
                file.write(f"{this}\n")
                file.flush()
                os.fsync(file.fileno())


def collector_folder() -> Path:
    """Return the folder of the collector's own files, for its owner alone; the same from anywhere."""
    named = os.environ.get(_FOLDER)
    try:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        folder = Path(named) if named else data / "fairpremium"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"The collector's folder cannot be used ({type(error).__name__}). Name a folder for the ledger and the "
            f"memo key in the environment variable {_FOLDER}, or name both files."
        ) from None
    return folder


def _read_memo_key(path: Path, *, may_be_new: bool) -> bytes:
    if not path.is_file():
        if not may_be_new:
            raise ValueError(f"There is no file {path}. Make a secret with: openssl rand -out {path} {_KEY_BYTES}")
        _make_memo_key(path)
    path.chmod(0o600)  # it undoes the noise
    return path.read_bytes()


def _make_memo_key(path: Path) -> None:
    """Write a new secret, whole and on disk; of two processes at the same time one writes it, and both use it."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
