"""One restart by Optuna's GPSampler and by BoTorch over a score table, as their documentation
drives them. Both are optional; neither is a dependency.

The table's library must be a whole grid, since Optuna proposes coordinates and knows no validity
rule. Both begin with the same random inputs as our methods.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from dreamcheck.discovery import Library

SCOUT = 3
BETA = 0.35
"""Weight of the standard deviation in the upper confidence bound; as in our methods."""


class NotInstalled(Exception):
    """The package is not here; the message says how to get it."""


def optuna_restart(library: Library, scores: np.ndarray, seed: int, budget: int) -> list[int]:
    """Library indices that ``GPSampler`` asks, in order; it may ask one twice."""
    try:
        import optuna
    except ImportError:
        raise NotInstalled("optuna is not installed: pip install optuna torch") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=SCOUT)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    sizes = library.radices
    first = [library.digits[i] for i in library.shuffled(seed)[:SCOUT]]
    for digits in first:
        study.enqueue_trial({f"c{k}": int(d) for k, d in enumerate(digits)})
    asked = []
    for _ in range(budget):
        trial = study.ask()
        digits = [trial.suggest_int(f"c{k}", 0, int(n) - 1) for k, n in enumerate(sizes)]
        index = int(np.dot(digits, library.strides))
        study.tell(trial, float(scores[index]))
        asked.append(index)
    return asked


def botorch_restart(library: Library, scores: np.ndarray, seed: int, budget: int) -> list[int]:
    """Library indices that an upper confidence bound on a ``SingleTaskGP`` asks, in order."""
    try:
        import botorch
        import torch
        from gpytorch.mlls import ExactMarginalLogLikelihood
    except ImportError:
        raise NotInstalled("botorch is not installed: pip install botorch") from None
    torch.manual_seed(seed)
    psi = torch.from_numpy(np.ascontiguousarray(library.psi)).double()
    unseen = np.ones(len(library), dtype=bool)
    asked = [int(i) for i in library.shuffled(seed)[:SCOUT]]
    unseen[asked] = False
    while len(asked) < budget:
        y = torch.from_numpy(scores[asked]).double().unsqueeze(-1)
        model = botorch.models.SingleTaskGP(psi[asked], y)
        botorch.fit.fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bound = botorch.acquisition.UpperConfidenceBound(model, beta=BETA**2)
        choices = np.flatnonzero(unseen)
        with torch.no_grad():
            chosen, _ = botorch.optim.optimize_acqf_discrete(
                bound, q=1, choices=psi[choices], max_batch_size=4096
            )
        index = int(choices[(psi[choices] == chosen[0]).all(dim=1).nonzero()[0, 0]])
        unseen[index] = False
        asked.append(index)
    return asked


PEERS: dict[str, Callable[[Library, np.ndarray, int, int], list[int]]] = {
    "Optuna GPSampler": optuna_restart,
    "BoTorch UCB": botorch_restart,
}
