"""One scoring, stage by stage: factors, baselines, and the reasons for what is missing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import torch

from dreamcheck.diagnostics.viscore import baselines as base
from dreamcheck.diagnostics.viscore import factors as fs
from dreamcheck.diagnostics.viscore import influence as inf
from dreamcheck.diagnostics.viscore import sobriety as sob
from dreamcheck.diagnostics.viscore import veracity as ver
from dreamcheck.diagnostics.viscore.bank import LatentBank
from dreamcheck.diagnostics.viscore.criteria import Criterion
from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.diagnostics.viscore.record import (
    CALIBRATED_AT,
    CALIBRATED_WIDTHS,
    ScoreRecord,
)
from dreamcheck.diagnostics.viscore.rollouts import Forecaster
from dreamcheck.diagnostics.viscore.search import Noise, NumpyNoise, TorchNoise
from dreamcheck.diagnostics.viscore.settings import ScoreSettings, fixed_projection
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.models.protocol import WorldModel

NAN = float("nan")


class Stopwatch:
    """Wall seconds of named stages."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds.append((stage, time.perf_counter() - start))


class Scoring:
    """One scoring, stage by stage; what fails to be measured leaves a reason."""

    def __init__(
        self,
        model: WorldModel,
        criterion: Criterion,
        probe: Probe,
        bank: LatentBank,
        settings: ScoreSettings,
        kept: Sequence[str],
        cell_id: str,
        watch: Stopwatch,
        on_predictions: Callable[[int], None] | None = None,
    ) -> None:
        self.model, self.criterion, self.probe = model, criterion, probe
        self.settings, self.kept, self.cell_id, self.watch = settings, kept, cell_id, watch
        self.bank = bank
        self.reasons: dict[str, str] = {}
        self.width_status, projection = self._width()
        # Veracity and influence see the projection; sobriety keeps the space planners search in.
        self.seen = bank
        if projection is not None:
            points = (torch.from_numpy(bank.points) @ projection).numpy()
            self.seen = replace(bank, points=points)
        self._on_predictions = on_predictions
        self.native = self._forecaster()
        self.forecaster = self._forecaster(projection=projection)

    def _forecaster(
        self, *, projection: torch.Tensor | None = None, bfloat16: bool = False
    ) -> Forecaster:
        return Forecaster(
            self.model,
            batch_rows=self.settings.batch_rows,
            generic=self.settings.generic,
            bfloat16=bfloat16,
            projection=projection,
            on_predictions=self._on_predictions,
        )

    def _width(self) -> tuple[str, torch.Tensor | None]:
        low, high = CALIBRATED_WIDTHS
        if self.settings.projection is not None:
            if self.settings.projection != CALIBRATED_AT:
                raise UsageError(
                    f"projection = {self.settings.projection}; tau was fitted near "
                    f"{CALIBRATED_AT}, the only projection with a meaning."
                )
            return f"projected to {CALIBRATED_AT}", fixed_projection(self.bank.width)
        if low <= self.bank.width <= high:
            return "calibrated", None
        if self.settings.reference:
            return "reference rule at any width", None
        return "uncalibrated width", None

    def record(self, *, epoch: float, training_loss: float) -> ScoreRecord:
        horizon = self.criterion.horizon
        rollout, tolerance = self._veracity()
        value = {n: NAN for n in fs.NAMES}
        value["veracity"] = (
            ver.veracity(tolerance.d_tol, rollout.sigma_roll) if "veracity" in self.kept else NAN
        )
        capacity, residuals, steps = None, None, None
        if "influence" in self.kept:
            capacity, residuals, steps = self._influence(rollout)
            value["influence"] = self._influence_value(capacity)
        elif self.settings.baselines:
            with suppress(Abstention):
                residuals, steps = self._one_step()
        gaps = self._sobriety() if "sobriety" in self.kept else None
        if gaps is not None:
            value["sobriety"] = gaps.sobriety
            if not math.isfinite(gaps.sobriety):
                self.reasons.setdefault("sobriety", "no gap is finite")
        included = {n: value[n] for n in self.kept}
        missing = [n for n, v in included.items() if not math.isfinite(v)]
        vis = NAN if missing else float(np.prod(list(included.values())))
        m_emp = capacity.nats if capacity else NAN
        rank = self.seen.effective_rank
        label = fs.label(self.kept)
        return ScoreRecord(
            task=self.criterion.task,
            cell_id=self.cell_id,
            model_identity=self.model.identity,
            probe_digest=self.probe.digest,
            criterion_digest=self.criterion.digest,
            factors=label,
            scale=self._scale(label),
            vis=vis,
            **value,
            status="abstained" if missing else "ok",
            reasons=tuple((n, self.reasons.get(n, "not finite")) for n in missing),
            saturated=tuple(n for n, v in included.items() if v >= fs.SATURATION),
            binding="" if missing else min(included, key=lambda n: included[n]),
            d_tol=tolerance.d_tol,
            d_tol_half=tolerance.d_tol / 2,
            num_pairs=tolerance.num_pairs,
            num_pair_candidates=tolerance.num_candidates,
            sigma_roll=rollout.sigma_roll,
            nmse=rollout.nmse,
            nmse_curve=rollout.nmse_curve,
            num_clips=rollout.num_clips,
            covariance_trace=self.seen.covariance_trace,
            m_emp=m_emp,
            m_emp_one_step=capacity.nats_one_step if capacity else NAN,
            tau=self.settings.tau,
            spectrum=capacity.spectrum if capacity else (),
            capacity_form=capacity.form if capacity else "",
            p_hat=gaps.p_hat if gaps else NAN,
            gap_resolution=gaps.resolution if gaps else NAN,
            num_gaps_below_resolution=gaps.num_below_resolution if gaps else 0,
            near_tie_below=gaps.near_tie_below if gaps else NAN,
            search_precision=gaps.precision if gaps else "",
            gaps=gaps.gaps if gaps else (),
            anchors=gaps.anchors if gaps else (),
            search=gaps.search if gaps else "",
            noise=gaps.noise if gaps else "",
            horizon=horizon,
            history=self.model.history_max,
            frameskip=self.probe.frameskip,
            width=self.bank.width,
            width_status=self.width_status,
            nats_per_effective_dimension=m_emp / rank if rank > 0 else NAN,
            samples_per_dimension=(
                capacity.num_residuals / self.seen.width if capacity is not None else NAN
            ),
            num_predictions=self.forecaster.num_predictions + self.native.num_predictions,
            baselines=self._baselines(m_emp, residuals, steps, epoch, training_loss),
            seconds=tuple(self.watch.seconds),
        )

    def _scale(self, label: str) -> str:
        parts = [f"factors {label}", f"H={self.criterion.horizon} blocks"]
        if "influence" in self.kept:
            parts += [f"tau={self.settings.tau:g} nats", self.width_status]
            if self.width_status == "reference rule at any width":
                parts[-1] += f" ({self.bank.width})"
        if "sobriety" in self.kept:
            parts.append(
                f"search {self.settings.search}{' bfloat16' if self.settings.fast else ''}"
            )
        return ", ".join(parts)

    def _veracity(self) -> tuple[ver.OpenLoop, ver.Tolerance]:
        with self.watch("veracity"):
            rollout = ver.OpenLoop((), NAN, NAN, 0, 0)
            tolerance = ver.Tolerance(NAN, 0, 0, False)
            if "veracity" in self.kept or "influence" in self.kept:
                rollout = ver.open_loop_error(
                    self.probe,
                    self.seen,
                    self.forecaster,
                    horizon=self.criterion.horizon,
                    curve=self.criterion.curve,
                )
            if "veracity" in self.kept:
                tolerance = ver.tolerance_in_latent(self.probe, self.seen, self.criterion)
                reason = "; ".join(r for r in (tolerance.reason, rollout.reason) if r)
                if reason:
                    self.reasons["veracity"] = reason
        return rollout, tolerance

    def _influence(
        self, rollout: ver.OpenLoop
    ) -> tuple[inf.Capacity | None, np.ndarray | None, np.ndarray | None]:
        with self.watch("influence"):
            try:
                residuals, steps = self._one_step()
            except Abstention as e:
                self.reasons["influence"] = str(e)
                return None, None, None
            if not math.isfinite(rollout.sigma_roll):
                self.reasons["influence"] = f"no noise floor at the horizon: {rollout.reason}"
                return None, residuals, steps
            try:
                responses, anchors = inf.action_responses(
                    self.probe, self.seen, self.forecaster, horizon=self.criterion.horizon
                )
                capacity = inf.capacity(
                    responses,
                    residuals,
                    sigma_roll=rollout.sigma_roll,
                    num_anchors=anchors,
                    memory_bytes=self.settings.memory_bytes,
                )
            except Abstention as e:
                self.reasons["influence"] = str(e)
                return None, residuals, steps
        return capacity, residuals, steps

    def _one_step(self) -> tuple[np.ndarray, np.ndarray]:
        """One-step residuals, and the latent's own step, of the same windows [n, P].

        Raises:
            Abstention: too few windows.
        """
        starts = inf.residual_windows(self.probe, history=self.model.history_max)
        residuals = inf.one_step_residuals(self.probe, self.seen, self.forecaster, starts)
        after = starts + self.model.history_max
        return residuals, self.seen.points[after] - self.seen.points[after - 1]

    def _influence_value(self, capacity: inf.Capacity | None) -> float:
        if capacity is None:
            return NAN
        if self.width_status == "uncalibrated width":
            low, high = CALIBRATED_WIDTHS
            self.reasons["influence"] = (
                f"uncalibrated width: latents of {self.bank.width} numbers are outside {low}-{high}, "
                f"and tau = {self.settings.tau:g} nats was fitted near {CALIBRATED_AT}; "
                f"m_emp = {capacity.nats:.4g} nats also measures width. {self._way_out()}"
            )
            return NAN
        return inf.influence(capacity.nats, tau=self.settings.tau)

    def _way_out(self) -> str:
        if self.bank.width > CALIBRATED_WIDTHS[1]:
            return (
                f"Declare a projection to {CALIBRATED_AT} (another scale), or leave influence out"
            )
        return (
            "Leave influence out (another scale), or apply the released rule as a reference, which "
            "compares with latents of this width only"
        )

    def _sobriety(self) -> sob.Gaps | None:
        with self.watch("sobriety"):
            screen = self._forecaster(bfloat16=True) if self.settings.fast else None
            try:
                return sob.planning_gaps(
                    self.probe,
                    self.bank,
                    self.native,
                    horizon=self.criterion.horizon,
                    noise=self._noise(),
                    search=self.settings.search,
                    screen=screen,
                )
            except Abstention as e:
                self.reasons["sobriety"] = str(e)
                return None

    def _noise(self) -> Noise:
        if self.settings.noise == "numpy":
            return NumpyNoise(self.cell_id)
        if self.settings.noise == "torch":
            return TorchNoise(self.cell_id, device=self.model.device)
        if isinstance(self.settings.noise, str):
            raise UsageError(f"noise = {self.settings.noise!r} is not one of numpy, torch.")
        return self.settings.noise

    def _baselines(
        self,
        m_emp: float,
        residuals: np.ndarray | None,
        steps: np.ndarray | None,
        epoch: float,
        training_loss: float,
    ) -> base.Baselines | None:
        if not self.settings.baselines:
            return None
        with self.watch("baselines"):
            reasons = {}
            ridge = network = NAN
            try:
                ridge = base.ridge_probe_r2(self.probe, self.bank, self.criterion)
                network = base.network_probe_r2(self.probe, self.bank, self.criterion)
                if not math.isfinite(ridge):
                    reasons["probe_r2"] = "too few episodes to hold some out, or a constant target"
            except UsageError as e:
                reasons["probe_r2"] = str(e)
            if not math.isfinite(m_emp):
                reasons["empowerment_nats"] = self.reasons.get("influence", "influence is excluded")
            if residuals is None:
                reasons["one_step_to_frozen"] = self.reasons.get(
                    "influence", "too few windows for a one-step error"
                )
            return base.Baselines(
                straightness=base.straightness(self.probe, self.bank),
                probe_r2=ridge,
                probe_r2_mlp=network,
                empowerment_nats=m_emp,
                effective_rank=self.bank.effective_rank,
                embedding_spread=base.embedding_spread(self.bank),
                one_step_to_frozen=(
                    base.one_step_to_frozen(residuals, steps)
                    if residuals is not None and steps is not None
                    else NAN
                ),
                epoch=epoch,
                training_loss=training_loss,
                reasons=tuple(reasons.items()),
            )
