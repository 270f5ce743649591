"""The insurer's side: keys instead of policy numbers, parts that can be sent again, a bundle that proves itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from fairpremium.parties.protocol import (
    PORTFOLIO_TYPE,
    Feature,
    Fit,
    FitSpec,
    InsurerStudy,
    LinkageSecret,
    PartTaken,
    Portfolio,
    PortfolioSpec,
    Problem,
    VerifyKey,
    make_keys,
    write_portfolio_part,
)

from ._client import Client

if TYPE_CHECKING:
    from fairpremium.parties.bundle import Bundle

_ROWS_PER_PART = 500_000


class Insurer(Client):
    """An insurer's requests.

    See `Client` for the parameters. The secret that turns policy numbers into keys never leaves this side.

    Examples
    --------
    See the guide, "The parties".
    """

    def study(self, study: str) -> InsurerStudy:
        """Look at a study."""
        return self.get(f"/v1/studies/{study}", InsurerStudy)

    def upload(
        self,
        frame: pd.DataFrame,
        *,
        study: str,
        portfolio: str,
        secret: LinkageSecret,
        policy: str,
        outcome: str,
        weight: str | None = None,
        exposure: str | None = None,
        features: Sequence[str] | None = None,
        x_star: Sequence[str] = (),
        rows_per_part: int = _ROWS_PER_PART,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> Portfolio:
        """Send a portfolio and seal it. Called again after an interruption, it sends what is missing.

        Parameters
        ----------
        frame : DataFrame
        study, portfolio : str
            Ids; that of the portfolio is chosen here.
        secret : LinkageSecret
            Of the study, shared with the collectors.
        policy : str
            Column with policy numbers, which are turned into keys and not sent.
        outcome : str
            Column with losses per unit of volume, or with `exposure` their totals (claim counts, amounts).
        weight : str, optional
            Column with the volume that the losses were divided by.
        exposure : str, optional
            Column with the exposure, if the outcome is a total over it. Losses are divided by it here: what is sent is
            the loss per unit of exposure, with the exposure as weight.
        features : sequence of str, optional
            Columns to price with; by default all that have no other role.
        x_star : sequence of str
            Columns from which an unknown channel is estimated, and which are not priced with.
        rows_per_part : int
        tell : callable
            Gets the number of parts that are there, and that of all.
        """
        volume = weight if exposure is None else exposure
        roles = [policy, outcome, *([] if volume is None else [volume]), *x_star]
        names = [c for c in frame.columns if c not in roles] if features is None else list(features)
        missing = [name for name in [*roles, *names] if name not in frame.columns]
        if missing:
            raise ValueError(f"Got a portfolio with columns {list(frame.columns)}, but expected {missing}, too.")
        if volume is not None:
            frame = _per_unit(frame, outcome, weight, exposure)
        spec = PortfolioSpec(
            study=study,
            features=tuple(_feature(frame, name) for name in names),
            x_star=tuple(_feature(frame, name) for name in x_star),
            key=_free_name("key", [*names, *roles]),
            outcome=outcome,
            weight=volume,
        )
        there = self.put(f"/v1/portfolios/{portfolio}", spec, Portfolio)
        table = pa.Table.from_pandas(frame[[column.name for column in spec.columns]], preserve_index=False)
        table = table.append_column(spec.key, make_keys(secret, frame[policy]))
        total = -(-len(frame) // rows_per_part)
        known = {part.n: part.sha256 for part in there.parts}
        if there.state != "open" and len(known) != total:
            raise Problem("conflict")
        digests: dict[int, str] = {}

        def missing_parts() -> Iterator[tuple[str, bytes]]:
            for n in range(total):
                body = write_portfolio_part(table.slice(n * rows_per_part, rows_per_part), spec)
                digests[n] = hashlib.sha256(body).hexdigest()
                if known.get(n, digests[n]) != digests[n]:
                    raise Problem("conflict")
                if n not in known:
                    yield f"/v1/portfolios/{portfolio}/parts/{n}", body

        done = len(known)
        for taken in self.put_files(missing_parts(), PORTFOLIO_TYPE, PartTaken):
            if taken.sha256 != digests[taken.n]:
                raise Problem("digest-mismatch")
            done += 1
            tell(done, total)
        if total and done == len(known):
            tell(done, total)
        return self.post(f"/v1/portfolios/{portfolio}/seal", Portfolio)

    def erase(self, portfolio: str) -> None:
        """Ask the service to erase the rows of a portfolio."""
        self.send("DELETE", f"/v1/portfolios/{portfolio}")

    def fit(self, fit: str, spec: FitSpec) -> Fit:
        """Ask for a fit."""
        return self.put(f"/v1/fits/{fit}", spec, Fit)

    def cancel(self, fit: str) -> Fit:
        """Ask a fit to stop."""
        return self.post(f"/v1/fits/{fit}/cancel", Fit)

    def fetch(self, fit: str, path: str | os.PathLike[str], *, trusted: Sequence[VerifyKey]) -> Bundle:
        """Fetch the bundle of a finished fit, and check all that can be checked about it.

        Parameters
        ----------
        fit : str
        path : str or path
            Where to put it.
        trusted : sequence of VerifyKey
            Keys of the service, as its operator announced them.
        """
        target = Path(path)
        digest = self.download(f"/v1/fits/{fit}/bundle", target)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Problem("digest-mismatch")
        from fairpremium.parties.bundle import load_bundle  # with the models, which sending does not need

        return load_bundle(target, keys=list(trusted))


def _per_unit(frame: pd.DataFrame, outcome: str, weight: str | None, exposure: str | None) -> pd.DataFrame:
    """Return the portfolio with losses per unit of volume."""
    from fairpremium.models import check_one_volume, check_volume, warn_if_counts

    check_one_volume(weight, exposure)
    columns = [None if name is None else frame[name] for name in (weight, exposure)]
    losses, volume = check_volume(frame[outcome], len(frame), *columns, of="the portfolio")
    if exposure is None:
        warn_if_counts(losses, volume, stacklevel=4)
        return frame
    return frame.assign(**{outcome: losses, exposure: volume})


def _feature(frame: pd.DataFrame, name: str) -> Feature:
    column = frame[name]
    is_number = pd.api.types.is_numeric_dtype(column) and not isinstance(column.dtype, pd.CategoricalDtype)
    return Feature(name=name, kind="number" if is_number else "category")


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name
