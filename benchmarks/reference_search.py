"""BasinLens and GP-UCB written plainly on scikit-learn's Gaussian process.

What the fast search is tested and timed against. It shares the input table, the scout order and
the streams that break ties with the package, and nothing else: neighbours by comparing tuples,
every candidate's mean and standard deviation from scikit-learn, pools by sorting.
Rules: spec/discovery.md section 3.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from dreamcheck.discovery import Library, SearchParameters
from dreamcheck.streams import stream

TIE = 1e-9


def fitted(psi: np.ndarray, scores: np.ndarray) -> GaussianProcessRegressor:
    """The specified surrogate, fitted."""
    d = psi.shape[1]
    kernel = ConstantKernel(1.0, "fixed") * RBF([0.25] * d, (0.03, 3.0)) + WhiteKernel(
        1e-4, "fixed"
    )
    model = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True, n_restarts_optimizer=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(psi, scores)


def tied_with_best(values: np.ndarray, best: float) -> np.ndarray:
    """Positions whose value is the best one up to rounding."""
    return np.flatnonzero(values >= best - TIE * max(1.0, abs(best)))


@dataclass
class Step:
    """One decision: every input's acquisition value under the reference, and the pool."""

    chosen: int
    pool: np.ndarray
    values: np.ndarray


class ReferenceSearch:
    """One restart, one query at a time, over an ordered library (no categorical coordinate)."""

    def __init__(
        self, library: Library, *, seed: int, method: str, parameters: SearchParameters
    ) -> None:
        self.psi = library.psi
        self.digits = library.digits
        self.ids = library.ids()
        self.seed = seed
        self.method = method
        self.p = parameters
        self.scout = library.shuffled(seed)[: parameters.scout]

    def next(self, asked: list[int], scores: np.ndarray) -> Step:
        """The query that follows ``asked``, whose scores are ``scores[asked]``."""
        if len(asked) < len(self.scout):
            chosen = int(self.scout[len(asked)])
            return Step(chosen, np.array([chosen]), np.zeros(len(self.psi)))
        observed = np.array(asked)
        y = scores[observed]
        unseen = np.ones(len(self.psi), dtype=bool)
        unseen[observed] = False
        mean, spread = y.mean(), max(y.std(), 1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mu, sigma = fitted(self.psi[observed], y).predict(self.psi, return_std=True)
        z_ucb = (mu + self.p.beta * sigma - mean) / spread
        if self.method == "gp-ucb":
            return self._choose(np.flatnonzero(unseen), z_ucb, len(asked))
        ranked = sorted(range(len(asked)), key=lambda i: (-y[i], self.ids[asked[i]]))
        anchors = [asked[i] for i in ranked[: self.p.anchors]]
        z_parent = np.full(len(self.psi), -3.0)
        local = np.zeros(len(self.psi), dtype=bool)
        for h in anchors:
            near = (self.digits != self.digits[h]).sum(axis=1) == 1
            local |= near
            z_parent[near] = np.maximum(z_parent[near], (scores[h] - mean) / spread)
        distance = cdist(self.psi, self.psi[observed])
        to_anchor = cdist(self.psi, self.psi[anchors])
        kappa = np.exp(-(to_anchor**2) / (2 * self.p.proximity_scale**2)).max(axis=1)
        values = (
            z_ucb
            + self.p.parent_weight * z_parent
            + self.p.proximity_weight * kappa
            + self.p.novelty_weight * distance.min(axis=1)
        )
        pool = (local & unseen) | self._global_pool(z_ucb, unseen, len(asked))
        return self._choose(np.flatnonzero(pool), values, len(asked))

    def _global_pool(self, z_ucb: np.ndarray, unseen: np.ndarray, step: int) -> np.ndarray:
        candidates = np.flatnonzero(unseen)
        mask = np.zeros(len(z_ucb), dtype=bool)
        if len(candidates) <= self.p.global_pool:
            mask[candidates] = True
            return mask
        values = z_ucb[candidates]
        last = np.sort(values)[-self.p.global_pool]
        slack = TIE * max(1.0, abs(last))
        sure = np.flatnonzero(values > last + slack)
        tied = np.flatnonzero(np.abs(values - last) <= slack)
        rng = stream(self.seed, "discovery-pool", step)
        if len(sure) + len(tied) > self.p.global_pool:
            tied = tied[rng.permutation(len(tied))[: self.p.global_pool - len(sure)]]
        mask[candidates[np.concatenate([sure, tied])]] = True
        return mask

    def _choose(self, pool: np.ndarray, values: np.ndarray, step: int) -> Step:
        tied = tied_with_best(values[pool], float(values[pool].max()))
        pick = 0
        if len(tied) > 1:
            pick = int(stream(self.seed, "discovery-tie", step).integers(len(tied)))
        return Step(int(pool[tied[pick]]), pool, values)
