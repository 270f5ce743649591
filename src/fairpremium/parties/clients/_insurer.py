"""The insurer's side: keys instead of policy numbers, parts that can be sent again, a bundle that proves itself."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairpremium.parties.protocol import (
    PORTFOLIO_TYPE,
    Feature,
    Fit,
    FitSpec,
    InsurerStudy,
    KeyChain,
    LinkageSecret,
    PartTaken,
    PerilColumns,
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
        outcome: str | None = None,
        claims: str | Mapping[str, str] | None = None,
        amount: str | Mapping[str, str] | None = None,
        weight: str | None = None,
        exposure: str | None = None,
        features: Sequence[str] | None = None,
        x_star: Sequence[str] = (),
        rows_per_part: int = _ROWS_PER_PART,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> Portfolio:
        """Send a portfolio and seal it. Called again after an interruption, it sends what is missing.

        An upload that failed does not use up the id of the portfolio: called again with a corrected table, it sends
        what is missing, or drops what was not sealed and begins anew. A sealed portfolio does not change any more.

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
            Column with losses per unit of volume, or with `exposure` their totals (claim counts, amounts). Give this,
            or `claims` and `amount`.
        claims, amount : str, or dict from the name of a peril to a column
            Columns with the number of claims of each row and their total amount, zero without a claim, for a fit of
            frequency and severity.
        weight : str, optional
            Column with the volume that the losses were divided by.
        exposure : str, optional
            Column with the exposure, if the outcome is a total over it. An outcome is divided by it here: what is sent
            is the loss per unit of exposure, with the exposure as weight. Claims are sent as they are, with it.
        features : sequence of str, optional
            Columns to price with; by default all that have no other role.
        x_star : sequence of str
            Columns from which an unknown channel is estimated, and which are not priced with.
        rows_per_part : int
        tell : callable
            Gets the number of parts that are there, and that of all.
        """
        perils = _perils(outcome, claims, amount, weight)
        losses = [name for peril in perils for name in (peril.count, peril.amount)] if outcome is None else [outcome]
        from fairpremium.models import check_one_volume  # with the models, which other requests do not need

        check_one_volume(weight, exposure)
        volume = weight if exposure is None else exposure
        roles = [policy, *losses, *([] if volume is None else [volume]), *x_star]
        names = [c for c in frame.columns if c not in roles] if features is None else list(features)
        twice = next((name for name in roles if [*roles, *names].count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Got column {twice!r} with two roles, but expected one for each column.")
        missing = [name for name in [*roles, *names] if name not in frame.columns]
        if missing:
            raise ValueError(f"Got a portfolio with columns {list(frame.columns)}, but expected {missing}, too.")
        _check_features(frame, names, losses)
        if outcome is not None and volume is not None:
            frame = _per_unit(frame, outcome, weight, exposure)
        spec = PortfolioSpec(
            study=study,
            features=tuple(_feature(frame, name) for name in names),
            x_star=tuple(_feature(frame, name) for name in x_star),
            key=_free_name("key", [*names, *roles]),
            outcome=outcome,
            weight=None if perils else volume,
            claims=perils,
            exposure=exposure if perils else None,
        )
        there = self._declare(portfolio, spec)
        table = pa.Table.from_pandas(frame[[column.name for column in spec.columns]], preserve_index=False)
        table = table.append_column(spec.key, make_keys(secret, frame[policy]))
        total = -(-len(frame) // rows_per_part)
        digests: dict[int, str] = {}

        def write(n: int) -> bytes:
            body = write_portfolio_part(table.slice(n * rows_per_part, rows_per_part), spec)
            digests[n] = hashlib.sha256(body).hexdigest()
            return body

        known = {part.n: part.sha256 for part in there.parts}
        for n in known:
            if n < total:
                write(n)
        if there.state != "open" and len(known) != total:
            raise Problem("conflict")
        if known != digests:
            known = {part.n: part.sha256 for part in self._begin_anew(there, spec).parts}

        def missing_parts() -> Iterator[tuple[str, bytes]]:
            for n in range(total):
                if n not in known:
                    yield f"/v1/portfolios/{portfolio}/parts/{n}", write(n)

        done = len(known)
        for taken in self.put_files(missing_parts(), PORTFOLIO_TYPE, PartTaken):
            if taken.sha256 != digests[taken.n]:
                raise Problem("digest-mismatch")
            done += 1
            tell(done, total)
        if total and done == len(known):
            tell(done, total)
        stored = self.get(f"/v1/portfolios/{portfolio}", Portfolio)
        if {part.n: part.sha256 for part in stored.parts} != digests:  # somebody else sends to the same id
            raise Problem("conflict")
        return self.post(f"/v1/portfolios/{portfolio}/seal", Portfolio)

    def _declare(self, portfolio: str, spec: PortfolioSpec) -> Portfolio:
        """Declare a portfolio, in the place of one with other columns that was not sealed."""
        try:
            return self.put(f"/v1/portfolios/{portfolio}", spec, Portfolio)
        except Problem as problem:
            if problem.code != "conflict":
                raise
            return self._begin_anew(self.get(f"/v1/portfolios/{portfolio}", Portfolio), spec)

    def _begin_anew(self, there: Portfolio, spec: PortfolioSpec) -> Portfolio:
        """Drop what an upload that failed has left, and declare the portfolio again."""
        if there.state != "open":
            raise Problem("conflict")
        self.erase(there.id)
        return self.put(f"/v1/portfolios/{there.id}", spec, Portfolio)

    def erase(self, portfolio: str) -> None:
        """Ask the service to erase the rows of a portfolio."""
        self.send("DELETE", f"/v1/portfolios/{portfolio}")

    def fit(self, fit: str, spec: FitSpec) -> Fit:
        """Ask for a fit."""
        return self.put(f"/v1/fits/{fit}", spec, Fit)

    def cancel(self, fit: str) -> Fit:
        """Ask a fit to stop."""
        return self.post(f"/v1/fits/{fit}/cancel", Fit)

    def fetch(self, fit: str, path: str | os.PathLike[str], *, trusted: Sequence[VerifyKey | KeyChain]) -> Bundle:
        """Fetch the bundle of a finished fit, and check all that can be checked about it.

        Parameters
        ----------
        fit : str
        path : str or path
            Where to put it.
        trusted : sequence of VerifyKey or KeyChain
            Keys of the service, as its operator announced them (`read_trusted_keys`).
        """
        target = Path(path)
        digest = self.download(f"/v1/fits/{fit}/bundle", target)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Problem("digest-mismatch")
        from fairpremium.parties.bundle import load_bundle  # with the models, which sending does not need

        return load_bundle(target, keys=trusted)


def _check_features(frame: pd.DataFrame, names: Sequence[str], losses: Sequence[str]) -> None:
    """Refuse a part of the losses, and warn of what is hardly a feature: a sealed portfolio cannot be changed."""
    from fairpremium.models import describe_texts, find_outcome

    numbers = [name for name in names if pd.api.types.is_numeric_dtype(frame[name])]
    for name in names:
        looks = None if name in numbers else describe_texts(frame[name].value_counts().to_dict())
        if looks is not None:
            warnings.warn(
                f"Column {name!r} has {looks}. A fit needs terms that name it; leave it out if it is not meant to be "
                "priced with (features=[...], --features).",
                UserWarning,
                stacklevel=3,
            )
    columns = {
        name: frame[name].to_numpy(dtype=np.float64) if name in numbers else pd.factorize(frame[name])[0]
        for name in names
    }
    for loss in losses:
        if not pd.api.types.is_numeric_dtype(frame[loss]):
            continue
        found = find_outcome(columns, frame[loss].to_numpy(dtype=np.float64), set(names) - set(numbers))
        if found is not None:
            raise ValueError(
                f"Got column {found!r} as a feature with values that no row has whose {loss!r} is zero, and many "
                "others have, which is not chance: it looks like a part of the losses. Leave it out of the portfolio, "
                "or name the features (features=[...], --features)."
            )


def _perils(outcome: str | None, claims: Any, amount: Any, weight: str | None) -> tuple[PerilColumns, ...]:
    """Return the columns with claims; there are none if there is an outcome."""
    given = [name for name, column in (("claims", claims), ("amount", amount)) if column is not None]
    if outcome is not None:
        if given:
            raise ValueError(f"Got outcome and {given[0]}, but expected outcome, or claims and amount.")
        return ()
    if len(given) < 2:
        raise ValueError(f"Got {given or 'no losses'}, but expected outcome, or claims and amount.")
    if weight is not None:
        raise ValueError(f"Got weight={weight!r} with claims, but expected exposure: claims are totals over it.")
    counts, amounts = ({"all": each} if isinstance(each, str) else dict(each) for each in (claims, amount))
    if not counts or set(counts) != set(amounts):
        raise ValueError(f"Got claims for {list(counts)}, but amount for {list(amounts)}; expected the same perils.")
    return tuple(PerilColumns(name=name, count=counts[name], amount=amounts[name]) for name in counts)


def _per_unit(frame: pd.DataFrame, outcome: str, weight: str | None, exposure: str | None) -> pd.DataFrame:
    """Return the portfolio with losses per unit of volume."""
    from fairpremium.models import check_volume, warn_if_counts

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
