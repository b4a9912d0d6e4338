"""The surrogate of GP-UCB and BasinLens: an exact Gaussian process on a library's grid.

The same model as scikit-learn's ``GaussianProcessRegressor(ConstantKernel(1, "fixed") * RBF([0.25]
* d, (0.03, 3.0)) + WhiteKernel(1e-4, "fixed"), alpha=1e-6, normalize_y=True)``: the same start,
bounds and optimiser, the marginal likelihood's gradient in closed form on precomputed squared
differences, and a standard deviation that includes the white noise.

With few observations the likelihood is flat and full of symmetries, and L-BFGS-B turns a difference
in the last bit into another optimum (of 2,432 fits, 12 moved a length scale by more than 1e-5, all
with fewer than 11 observations). Up to EXACT_ROWS observations the arithmetic therefore follows
scikit-learn's operation by operation, and gives its bits.
Source: spec/discovery.md section 3; Rasmussen and Williams (2006), algorithm 2.1 and eq. 5.9.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs
from scipy.spatial.distance import pdist, squareform

from dreamcheck.discovery.geometry import GridGeometry
from dreamcheck.discovery.lbfgsb import minimise

LENGTH_START = 0.25
LENGTH_BOUNDS = (0.03, 3.0)
WHITE_NOISE = 1e-4
JITTER = 1e-6
MAX_ROWS = 1 << 14
EXACT_ROWS = 16


class GaussianProcess:
    """A fitted surrogate. Inputs are indices of the geometry's library.

    length_scales: [d], fitted.
    log_marginal_likelihood: of the standardised targets, at the fitted length scales.
    target_mean, target_std: what standardised the targets; the std is 1 for constant ones.
    """

    def __init__(self, geometry: GridGeometry, indices: np.ndarray, targets: np.ndarray) -> None:
        """Fit to the observations.

        Args:
            geometry: of the library.
            indices: observed inputs [n], n >= 1.
            targets: finite scores [n].
        """
        self.geometry = geometry
        self.indices = np.asarray(indices, dtype=np.int64)
        targets = np.asarray(targets, dtype=np.float64)
        self.target_mean = float(targets.mean())
        std = float(targets.std())
        # Constant targets whose mean was rounded: their std is rounding noise, not a scale.
        if std <= 10 * np.finfo(float).eps * float(np.abs(targets).max()):
            std = 0.0
        self.target_std = std or 1.0
        y = (targets - self.target_mean) / self.target_std if std else np.zeros(len(targets))
        objective: _Objective | _ExactObjective
        if len(y) <= EXACT_ROWS and geometry.ordered:
            objective = _ExactObjective(geometry.library.psi_rows(self.indices), y)
        else:
            objective = _Objective(geometry.coordinate_distances(self.indices), y)
        num = geometry.num_coordinates
        log_scales, least = minimise(
            objective,
            np.full(num, math.log(LENGTH_START)),
            low=math.log(LENGTH_BOUNDS[0]),
            high=math.log(LENGTH_BOUNDS[1]),
        )
        self.length_scales = np.exp(log_scales)
        self.log_marginal_likelihood = -least
        self._weights = self.length_scales**-2.0
        kernel = objective.kernel(log_scales)
        self._cholesky, info = dpotrf(kernel.T, lower=1, clean=1, overwrite_a=1)
        # Unit diagonal plus noise: positive definite up to rounding at any length scale in bounds.
        assert info == 0, "the kernel matrix lost its positive definiteness"
        self._alpha = dpotrs(self._cholesky, y[:, None], lower=1)[0][:, 0]

    def mean(self) -> np.ndarray:
        """Posterior mean of every input of the library, [N], in score units."""
        sums = self.geometry.kernel_sums(self.indices, self._alpha[:, None], weights=self._weights)
        return self.target_std * sums[0] + self.target_mean

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation at some inputs, in score units, [m] each.

        The standard deviation is that of a new measurement: it includes the white noise.
        """
        mean, std = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), MAX_ROWS):
            part = slice(start, start + MAX_ROWS)
            kernel = self.geometry.kernel_columns(rows[part], self.indices, weights=self._weights)
            mean[part] = self.target_std * (self._alpha @ kernel) + self.target_mean
            std[part] = self._std(kernel)
        return mean, std

    def std(self, rows: np.ndarray) -> np.ndarray:
        """Posterior standard deviation at some inputs, [m]."""
        return self.predict(rows)[1]

    def _std(self, kernel: np.ndarray) -> np.ndarray:
        solved = dtrtrs(self._cholesky, kernel, lower=1)[0]
        variance = 1.0 + WHITE_NOISE - np.einsum("ij,ij->j", solved, solved)
        return self.target_std * np.sqrt(np.maximum(variance, 0.0))

    def leaders(
        self,
        *,
        beta: float,
        unseen: np.ndarray,
        count: int,
        centre: float,
        spread: float,
        tolerance: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Unseen inputs of the ``count`` highest (mu + beta sigma - centre) / spread.

        Standard deviations are computed only where the prior's would still let an input win.

        Args:
            beta: weight of the standard deviation, 0 or more.
            unseen: bool mask [N] with at least one input set.
            count: how many leaders are wanted.
            centre, spread: what standardises the bound.
            tolerance: slack relative to max(1, |value|); everything tied with the last leader
                is returned too.

        Returns:
            Indices in ascending order and their values; at least min(count, unseen) of them.
        """
        mean = self.mean()
        mean -= centre
        mean /= spread
        beta = beta / spread
        candidates = np.flatnonzero(unseen)
        if len(candidates) < len(mean):
            mean = mean[candidates]
        first = max(256, 8 * count)
        if len(candidates) <= 2 * first:
            values = mean + beta * self.std(candidates)
            keep = values >= _threshold(values, count=count, tolerance=tolerance)
            return candidates[keep], values[keep]
        # No posterior variance exceeds the prior's, so mean + beta * prior std bounds the value.
        slack = beta * self.target_std * math.sqrt(1.0 + WHITE_NOISE)
        lead = np.argpartition(mean, len(mean) - first)[len(mean) - first :]
        values = mean[lead] + beta * self.std(candidates[lead])
        threshold = _threshold(values, count=count, tolerance=tolerance)
        possible = mean >= threshold - slack
        possible[lead] = False
        rest = np.flatnonzero(possible)
        positions, found = [lead], [values]
        if len(rest) > MAX_ROWS:
            # The best bounds first: each block can raise the threshold for the ones after it.
            rest = rest[np.argsort(-mean[rest], kind="stable")]
        for start in range(0, len(rest), MAX_ROWS):
            block = rest[start : start + MAX_ROWS]
            block = block[mean[block] >= threshold - slack]
            if not len(block):
                break
            values = mean[block] + beta * self.std(candidates[block])
            keep = values >= threshold
            positions.append(block[keep])
            found.append(values[keep])
            threshold = _threshold(np.concatenate(found), count=count, tolerance=tolerance)
        at, value = np.concatenate(positions), np.concatenate(found)
        keep = value >= threshold
        at, value = at[keep], value[keep]
        order = np.argsort(at)
        return candidates[at[order]], value[order]


class _ExactObjective:
    """The same as ``_Objective``, in scikit-learn's order of operations; ordered coordinates."""

    def __init__(self, psi: np.ndarray, targets: np.ndarray) -> None:
        self._n = len(psi)
        self._psi = np.ascontiguousarray(psi)
        self._squared = (psi[:, np.newaxis, :] - psi[np.newaxis, :, :]) ** 2
        self._targets = targets[:, np.newaxis]
        self._identity = np.eye(self._n, order="F")
        self._diagonal = slice(None, None, self._n + 1)
        self._constant = self._n / 2 * np.log(2 * np.pi)

    def kernel(self, log_scales: np.ndarray) -> np.ndarray:
        """Kernel matrix with noise and jitter on its diagonal, [n, n]."""
        scaled = self._psi / np.exp(log_scales)
        kernel = squareform(np.exp(-0.5 * pdist(scaled, metric="sqeuclidean")))
        kernel.ravel()[self._diagonal] = 1.0 + WHITE_NOISE + JITTER
        return kernel

    def __call__(self, log_scales: np.ndarray) -> tuple[float, np.ndarray]:
        kernel = self.kernel(log_scales)
        # The diagonal's noise meets a zero distance here, so one kernel serves both.
        slope = self._squared / np.exp(log_scales) ** 2
        slope *= kernel[..., np.newaxis]
        factor, info = dpotrf(kernel.T, lower=1, clean=1)
        if info:
            return math.inf, np.zeros_like(log_scales)
        alpha = dpotrs(factor, self._targets, lower=1)[0]
        value = -0.5 * np.einsum("ik,ik->k", self._targets, alpha)
        value -= np.log(np.diag(factor)).sum()
        value -= self._constant
        weight = np.einsum("ik,jk->ijk", alpha, alpha)
        weight -= dpotrs(factor, self._identity, lower=1)[0][..., np.newaxis]
        gradient = 0.5 * np.einsum("ijl,jik->kl", weight, slope)
        return -float(value[0]), -gradient[:, 0]


class _Objective:
    """Negative log marginal likelihood and its gradient in the log length scales."""

    def __init__(self, squared: np.ndarray, targets: np.ndarray) -> None:
        num_coordinates, n, _ = squared.shape
        self._n = n
        self._flat = squared.reshape(num_coordinates, n * n)
        self._targets = targets[:, None]
        self._diagonal = slice(None, None, n + 1)
        self._constant = 0.5 * n * math.log(2.0 * math.pi)

    def kernel(self, log_scales: np.ndarray) -> np.ndarray:
        """Kernel matrix with noise and jitter on its diagonal, [n, n]."""
        flat = np.exp((-0.5 * np.exp(-2.0 * log_scales)) @ self._flat)
        flat[self._diagonal] = 1.0 + WHITE_NOISE + JITTER
        return flat.reshape(self._n, self._n)

    def __call__(self, log_scales: np.ndarray) -> tuple[float, np.ndarray]:
        inverse_squares = np.exp(-2.0 * log_scales)
        flat = np.exp((-0.5 * inverse_squares) @ self._flat)
        flat[self._diagonal] = 1.0 + WHITE_NOISE + JITTER
        kernel = flat.reshape(self._n, self._n)
        factor, info = dpotrf(kernel.T, lower=1, clean=1, overwrite_a=0)
        if info:
            return math.inf, np.zeros_like(log_scales)
        alpha = dpotrs(factor, self._targets, lower=1)[0]
        value = (
            0.5 * float(self._targets[:, 0] @ alpha[:, 0])
            + float(np.log(factor.ravel("K")[self._diagonal]).sum())
            + self._constant
        )
        # Only the lower triangle of the inverse is filled, and the upper one is zero: a sum over
        # both triangles is twice a sum over it (the diagonal has no distance).
        inverse = dpotri(factor, lower=1, overwrite_c=1)[0]
        weight = (alpha @ alpha.T - 2.0 * inverse.T).ravel() * flat
        # eq. 5.9: dK/dlog l_c = K * d_c^2 / l_c^2
        gradient = -0.5 * inverse_squares * (self._flat @ weight)
        return value, gradient


def _threshold(values: np.ndarray, *, count: int, tolerance: float) -> float:
    """The count-th largest value less a relative slack."""
    if len(values) <= count:
        return -math.inf
    kth = float(np.partition(values, len(values) - count)[len(values) - count])
    return kth - tolerance * max(1.0, abs(kth))
