"""A likelihood whose law is learned: prices and the density of their residuals in turn.

Responsibilities T[s, k] q_k(x) g(y - f_k(x)) weight the residuals from which the density g is estimated, and the
likelihood with that density gives the prices. The first density comes from the distribution-free prices, with the
signed weights T^-1[k, s] in place of responsibilities.
"""

from dataclasses import replace

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.families import Family, ResidualLaw

_ROWS = 30_000  # rows whose residuals give the density
_ROUNDS = 20
_GAIN = 0.5  # log-likelihood that a round must gain
LAW_PARAMETERS = 20  # for which a learned density counts in a comparison of likelihoods


def can_learn_law(family: Family) -> bool:
    """Tell whether residuals have one law at all: additive noise around means on the outcome's scale."""
    return family.link.name == "identity"


def first_law(latent: Latent, base: GroupFit, at: Parameters) -> tuple[ResidualLaw, Parameters]:
    """Learn the density around distribution-free prices, and start the dispersion there."""
    block = _some(latent)
    signed = base.channel.table.T[block.report]
    residual, w = _residuals(latent, block, at)
    volume = signed.sum()
    variance = float((signed * w * residual**2).sum() / volume)
    variance = max(variance, 0.05 * float((w * residual**2).mean()))  # a signed mean can come out negative
    at = replace(at, log_dispersion=np.full(latent.n_groups, np.log(variance)))
    return _learn(latent, block, at, signed), at


def learn_law(latent: Latent, at: Parameters) -> tuple[Latent, Parameters]:
    """Alternate between density and prices from a likelihood with a first density, as long as both gain."""
    block = _some(latent)
    sample = latent if len(latent.rows) <= 2 * _ROWS else latent.on(latent.rows.spaced(_ROWS))
    value = -np.inf
    for _ in range(_ROUNDS):
        at = sample.maximise(at, tol=1e-4)
        now = sample.value(at)
        if now < value + _GAIN:
            break
        value = now
        sample = replace(sample, law=_learn(sample, block, at, sample.responsibilities(block, at)))
    return replace(latent, law=sample.law), at


def _some(latent: Latent) -> Block:
    rows = latent.rows.spaced(_ROWS)
    return rows.block(0, len(rows))


def _residuals(latent: Latent, block: Block, at: Parameters) -> tuple[Array, Array]:
    """Compute y - f_k(x) and the volumes: (rows, K) and (rows, 1)."""
    assert latent.predictors is not None
    w = np.ones((len(block.y), 1)) if block.weight is None else block.weight[:, None]
    return block.y[:, None] - latent.predictors(block) @ at.B, w


def _learn(latent: Latent, block: Block, at: Parameters, weight: Array) -> ResidualLaw:
    residual, w = _residuals(latent, block, at)
    return ResidualLaw.learn((residual * np.sqrt(w) / np.exp(0.5 * at.log_dispersion)).ravel(), weight.ravel())
