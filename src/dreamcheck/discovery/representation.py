"""The representation in which kernel-weighted methods measure distance.

Most libraries use psi. A library of action templates uses the seed paper's seven numbers:
[seed/64, abar_x, abar_y, ||abar||, std_x + std_y, mean ||a_{t+1} - a_t||, gamma].
Source: spec/discovery.md section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.discovery.geometry import DenseGeometry, Geometry
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.search import LibraryView
from dreamcheck.discovery.specification import ActionTemplates

SEED_SCALE = 64.0


@dataclass(frozen=True, slots=True)
class ActionFeatures:
    """What an action-template library is searched by, one row per input.

    seeds: reset seed [N]; scales: gamma [N]; mean_actions: abar [N, A]; phi: [N, 4 + A + ...].
    """

    seeds: np.ndarray
    scales: np.ndarray
    mean_actions: np.ndarray
    phi: np.ndarray


def macro_actions(templates: ActionTemplates, *, label: Value, scale: float) -> np.ndarray:
    """A template's macro actions: cycled to the horizon, scaled, clipped to [-1, 1]: [T, A]."""
    base = np.array(templates.actions[str(label)], dtype=np.float64)
    cycled = base[np.arange(templates.horizon) % len(base)]
    return np.clip(scale * cycled, -1.0, 1.0)


def action_sequence(library: Library, index: int) -> np.ndarray:
    """Raw simulator actions of one input, each macro action repeated: [T * repeat, A].

    Raises:
        ValueError: the specification has no action templates.
    """
    templates = library.specification.templates
    if templates is None:
        raise ValueError(f"{library.specification.name!r} has no action templates.")
    values = library.values(index)
    macro = macro_actions(
        templates, label=values[templates.coordinate], scale=float(values[templates.scale])
    )
    return np.repeat(macro, templates.repeat, axis=0)


def action_features(library: Library) -> ActionFeatures | None:
    """Features of an action-template library, None for any other; computed once."""
    templates = library.specification.templates
    if templates is None:
        return None
    found = getattr(library, "_action_features", None)
    if found is None:
        labels = library.column(templates.coordinate)
        scales = library.column(templates.scale).astype(np.float64)
        seeds = library.column(templates.seed).astype(np.float64)
        actions = np.stack(
            [
                macro_actions(templates, label=str(label), scale=float(scale))
                for label, scale in zip(labels, scales, strict=True)
            ]
        )
        mean = actions.mean(axis=1)
        change = np.linalg.norm(np.diff(actions, axis=1), axis=2).mean(axis=1)
        phi = np.column_stack(
            [
                seeds / SEED_SCALE,
                mean,
                np.linalg.norm(mean, axis=1),
                actions.std(axis=1).sum(axis=1),
                change,
                scales,
            ]
        )
        found = ActionFeatures(seeds=seeds, scales=scales, mean_actions=mean, phi=phi)
        library._action_features = found  # type: ignore[attr-defined]
    return found


def kernel_geometry(library: Library) -> Geometry:
    """Where kernel-weighted methods measure distance: phi of action templates, else psi."""
    features = action_features(library)
    if features is None:
        return LibraryView.of(library).geometry
    found = getattr(library, "_kernel_geometry", None)
    if found is None:
        found = DenseGeometry(features.phi)
        library._kernel_geometry = found  # type: ignore[attr-defined]
    return found
