"""Laws of the score on small linear worlds: invariances, extremes, abstentions, bad input."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.diagnostics.viscore import (
    Criterion,
    Probe,
    ScoreCallback,
    ScoreSettings,
    bank_from_latents,
    build_probe,
    encode_bank,
    factor_set,
    load_criterion,
    rank,
    require_comparable,
    score,
    table,
    to_csv,
)
from dreamcheck.diagnostics.viscore.criteria import criterion, criterion_names
from dreamcheck.diagnostics.viscore.influence import (
    capacity,
    capacity_dense,
    capacity_gram,
    gram_memory_bytes,
    noise_covariance,
)
from dreamcheck.diagnostics.viscore.keeping import keep_score, kept_score, score_key
from dreamcheck.diagnostics.viscore.search import GivenNoise, NumpyNoise
from dreamcheck.diagnostics.viscore.veracity import clip_starts, tolerance_in_latent, veracity
from dreamcheck.errors import Abstention, EvidenceError, ExitCode, InterfaceMismatch, UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.tasks.protocol import Column

WIDTH, STEP, RAW, SKIP = 96, 5, 2, 5
BLOCK = RAW * SKIP

CRITERION = Criterion(
    task="linear", tolerance=1.0, unit="m", graded=("x", "y"), horizon=STEP, curve=8
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class LinearModel:
    """z' = z A + u B, one latent of history; ``gain`` scales the actions' effect."""

    device = torch.device("cpu")

    def __init__(self, a, b, *, identity="linear", gain=1.0, bias=0.0, history=1, history_min=1):
        self.a, self.b = torch.as_tensor(a).float(), torch.as_tensor(b).float()
        self.gain, self.bias = gain, bias
        self.history_min, self.history_max = history_min, history
        self.identity = identity
        self.latent = LatentSpec(shape=(len(self.a),))
        self.conventions = Conventions(
            image_size=1,
            frameskip=SKIP,
            action_dim=RAW,
            action_mean=(0.0,) * RAW,
            action_std=(1.0,) * RAW,
            history=history,
        )

    def encode(self, observation):
        flat = observation["pixels"].float().flatten(1)
        return torch.cat([flat, torch.zeros(len(flat), len(self.a) - flat.shape[1])], dim=1)

    def embed_actions(self, blocks):
        return blocks

    def predict(self, latents, actions, *, row_seeds=None):
        return latents[:, -1] @ self.a + self.gain * (actions[:, -1] @ self.b) + self.bias


@pytest.fixture(scope="module")
def world():
    """A probe, its exact latents, and the matrices that made them (the perfect predictor)."""
    return make_world(WIDTH)


def make_world(width, *, episodes=12, rows=30, noise=0.0, decays=None):
    rng = np.random.default_rng(3)
    q, _ = np.linalg.qr(rng.standard_normal((width, width)))
    a, b = (
        0.9 * q if decays is None else np.diag(decays),
        rng.standard_normal((BLOCK, width)) / np.sqrt(BLOCK),
    )
    blocks = rng.standard_normal((episodes * rows, BLOCK)).astype(np.float32)
    ptr = np.arange(episodes + 1) * rows
    state = np.zeros((len(blocks), 2), np.float32)
    probe = Probe.from_arrays(act_blocks=blocks, ep_ptr=ptr, state=state, columns=("x", "y"))
    u = probe.normalized_blocks.astype(np.float64)
    z = np.zeros((len(blocks), width))
    for e in range(episodes):
        z[ptr[e]] = rng.standard_normal(width)
        for t in range(ptr[e], ptr[e + 1] - 1):
            z[t + 1] = z[t] @ a + u[t] @ b + noise * rng.standard_normal(width)
    state[:] = z[:, :2] * 1.0
    probe = dataclasses.replace(probe, state=state)
    return probe, z.astype(np.float32), a, b


def run(model, probe, z, *, criterion=CRITERION, **settings):
    settings = {"baselines": False, **settings}
    bank = bank_from_latents(model, probe, z)
    return score(
        model, criterion, probe, bank=bank, cell_id="cell", settings=ScoreSettings(**settings)
    )


def noisy(width=WIDTH):
    probe, z, a, b = make_world(width, noise=0.3)
    return probe, z, a, b


# Extremes


def test_a_perfect_predictor_has_every_factor_near_one(world):
    probe, z, a, b = world
    got = run(LinearModel(a, b), probe, z)
    assert got.nmse < 1e-9 and got.veracity > 0.999
    # 50 controllable directions over a floor of 1e-9 of the variance: far above 82 nats.
    assert got.influence == 1.0 and "influence" in got.saturated
    assert got.sobriety == 1.0 and got.status == "ok" and got.vis > 0.999


def test_a_predictor_that_ignores_actions_has_no_influence(world):
    probe, z, a, b = world
    got = run(LinearModel(a, b, gain=0.0), probe, z)
    assert got.m_emp == 0.0 and got.influence == 0.0 and got.vis == 0.0
    assert got.binding == "influence" and got.status == "ok"
    # No plan differs from another, so nothing beats the recorded one.
    assert got.sobriety == 1.0


def test_a_collapsed_encoder_scores_zero_and_not_nan(world):
    probe, z, a, b = world
    constant = np.ones_like(z)
    still = LinearModel(np.eye(WIDTH), b, gain=0.0)
    got = run(still, probe, constant)
    assert got.d_tol == 0.0 and got.veracity == 0.0 and got.vis == 0.0 and got.status == "ok"


def test_an_unreachable_tolerance_abstains_with_the_count(world):
    probe, z, a, b = world
    got = run(LinearModel(a, b), probe, z, criterion=CRITERION.replace(tolerance=1e6))
    assert np.isnan(got.vis) and got.status == "abstained"
    assert got.exit_code == ExitCode.ABSTAINED
    assert "only 0 of" in dict(got.reasons)["veracity"]
    assert np.isfinite(got.influence) and got.to_dict()["vis"] is None


def test_twenty_nine_pairs_abstain_and_thirty_give_a_tolerance():
    # Episodes of three rows that move 1, then 5: one pair of each is a tolerance of 1 apart.
    def shell(episodes):
        x = np.tile([0.0, 1.0, 6.0], episodes)
        probe = Probe.from_arrays(
            act_blocks=np.arange(3.0 * episodes)[:, None],
            ep_ptr=np.arange(episodes + 1) * 3,
            state=x[:, None],
            columns=("x",),
        )
        model = LinearModel(np.eye(2), np.zeros((BLOCK, 2)))
        bank = bank_from_latents(model, probe, np.stack([2 * x, 0 * x], axis=1))
        return tolerance_in_latent(
            probe, bank, Criterion(task="t", tolerance=1.0, unit="m", graded=("x",))
        )

    few, enough = shell(29), shell(30)
    assert np.isnan(few.d_tol) and "only 29 of 87 row pairs" in few.reason
    assert enough.d_tol == pytest.approx(2.0) and enough.reason == ""


def test_a_tiny_cap_saturates_influence():
    probe, z, a, b = noisy()
    got = run(LinearModel(a, b), probe, z, tau=1e-3)
    assert got.saturated == ("influence",) and got.influence == 1.0


# Invariances and the one that does not hold


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_rescaling_the_latent_changes_no_factor(scale):
    probe, z, a, b = noisy()
    one = run(LinearModel(a, b), probe, z)
    other = run(LinearModel(a, scale * np.asarray(b)), probe, scale * z)
    assert other.sigma_roll == pytest.approx(scale * one.sigma_roll, rel=1e-4)
    assert other.veracity == pytest.approx(one.veracity, rel=1e-4)
    assert other.m_emp == pytest.approx(one.m_emp, rel=1e-4)
    assert other.p_hat == one.p_hat


def transformed(matrix, world=None):
    probe, z, a, b = world or noisy()
    inverse = np.linalg.inv(matrix)
    one = run(LinearModel(a, b), probe, z, include="I")
    other = run(LinearModel(inverse @ a @ matrix, b @ matrix), probe, z @ matrix, include="I")
    return one.m_emp, other.m_emp


def test_a_signed_permutation_leaves_the_capacity():
    rng = np.random.default_rng(0)
    matrix = np.eye(WIDTH)[rng.permutation(WIDTH)] * rng.choice([-1.0, 1.0], WIDTH)
    one, other = transformed(matrix)
    assert other == pytest.approx(one, rel=1e-4)


def test_a_rotation_moves_the_capacity_only_by_the_diagonal_shrinkage():
    rng = np.random.default_rng(0)
    matrix, _ = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))
    one, other = transformed(matrix)
    assert abs(other - one) < 0.05 * one


def test_a_diagonal_or_general_map_changes_the_capacity():
    # Half of the coordinates forget their error at once, half keep it for the whole horizon:
    # sigma_roll squared over tr E is a ratio of traces that depends on how they are weighted.
    decays = np.where(np.arange(WIDTH) % 2 == 0, 0.0, 0.98)
    world = make_world(WIDTH, noise=0.3, decays=decays)
    long, short = np.where(decays > 0, 5.0, 1.0), np.where(decays > 0, 1.0, 5.0)
    one, lower = transformed(np.diag(long), world)
    _, higher = transformed(np.diag(short), world)
    mix = np.random.default_rng(0).standard_normal((WIDTH, WIDTH))
    _, general = transformed(long[:, None] * mix, world)
    assert lower < 0.95 * one and higher > 1.05 * one and general < 0.95 * one


def test_log_det_is_invariant_under_any_invertible_map_of_both_covariances():
    rng = np.random.default_rng(1)
    x, y, m = (rng.standard_normal((12, 12)) for _ in range(3))
    signal, noise = x @ x.T, y @ y.T + np.eye(12)
    nats, _ = capacity_dense(signal, noise)
    moved, _ = capacity_dense(m.T @ signal @ m, m.T @ noise @ m)
    assert moved == pytest.approx(nats, rel=1e-8)
    # Independent route: ½ (log det(N + S) − log det N).
    direct = 0.5 * (np.linalg.slogdet(noise + signal)[1] - np.linalg.slogdet(noise)[1])
    assert nats == pytest.approx(direct, rel=1e-8)


def test_batches_of_any_size_give_the_same_record():
    probe, z, a, b = noisy()
    one = run(LinearModel(a, b), probe, z, batch_rows=64)
    two = run(LinearModel(a, b), probe, z, batch_rows=5000)
    assert two.p_hat == one.p_hat and two.m_emp == pytest.approx(one.m_emp, rel=1e-6)


def test_the_batch_is_halved_when_memory_runs_out():
    probe, z, a, b = noisy()
    model = LinearModel(a, b)
    plain, sizes = model.predict, []

    def small_memory(latents, actions, *, row_seeds=None):
        sizes.append(len(latents))
        if len(latents) > 100:
            raise torch.OutOfMemoryError("pretended")
        return plain(latents, actions)

    wanted = run(model, probe, z)
    model.predict = small_memory
    got = run(model, probe, z, batch_rows=400)
    assert got.p_hat == wanted.p_hat and got.m_emp == pytest.approx(wanted.m_emp, rel=1e-6)
    assert {400, 200} & set(sizes) and max(sizes[-50:]) <= 100
    model.predict = lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("always"))
    with pytest.raises(torch.OutOfMemoryError):
        run(model, probe, z)


def test_patch_latents_score_like_the_same_numbers_in_a_row():
    probe, z, a, b = noisy()

    class Patches(LinearModel):
        def __init__(self, *args):
            super().__init__(*args)
            self.latent = LatentSpec(shape=(8, WIDTH // 8), kind="patches")

        def predict(self, latents, actions, *, row_seeds=None):
            flat = super().predict(latents.flatten(2), actions)
            return flat.reshape(len(flat), 8, WIDTH // 8)

    one = run(LinearModel(a, b), probe, z)
    other = run(Patches(a, b), probe, z.reshape(len(z), 8, WIDTH // 8))
    for name in ("veracity", "m_emp", "sobriety", "sigma_roll", "width"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-5), name
    # Token latents have no distances: an abstention that says so, not a number.
    tokens = Patches(a, b)
    tokens.latent = LatentSpec(shape=(8, WIDTH // 8), kind="tokens")
    with pytest.raises(Abstention, match="no distances"):
        run(tokens, probe, z.reshape(len(z), 8, WIDTH // 8))


def test_a_gradient_search_without_gradients_abstains_and_names_the_way_out():
    probe, z, a, b = noisy()
    model = LinearModel(a, b)
    plain = model.predict
    model.predict = lambda z, u, **_: plain(z, u).detach()
    got = run(model, probe, z, include="S", search="mini-adamw")
    assert got.status == "abstained" and "use the mini-CEM" in dict(got.reasons)["sobriety"]


# Width


def test_the_gram_form_equals_the_dense_form():
    rng = np.random.default_rng(2)
    mix = rng.standard_normal((300, 300))
    responses = (rng.standard_normal((80, 300)) @ mix).astype(np.float32)
    residuals = (0.5 + rng.standard_normal((120, 300))).astype(np.float32)
    dense = capacity(responses, residuals, sigma_roll=3.0)
    gram = capacity(responses, residuals, sigma_roll=3.0, dense_width=64)
    assert (dense.form, gram.form) == ("dense", "gram")
    assert gram.nats == pytest.approx(dense.nats, rel=1e-7)
    assert gram.nats_one_step == pytest.approx(dense.nats_one_step, rel=1e-7)
    np.testing.assert_allclose(gram.spectrum[:70], dense.spectrum[:70], rtol=1e-5)
    e = noise_covariance(residuals)
    assert e.shape == (300, 300)
    sliced, _ = capacity_gram(responses, residuals, scale=1.0, chunk=37)
    assert sliced == pytest.approx(dense.nats_one_step, rel=1e-7)


def test_the_gram_form_states_and_keeps_its_memory_bound():
    rng = np.random.default_rng(3)
    n, m, width = 300, 500, 6000
    tracemalloc.start()
    responses = rng.standard_normal((n, width), dtype=np.float32)
    residuals = rng.standard_normal((m, width), dtype=np.float32)
    tracemalloc.reset_peak()
    got = capacity(responses, residuals, sigma_roll=1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    bound = gram_memory_bytes(n, m, width)
    assert got.form == "gram" and 0.3 * bound < peak <= bound
    # A dense form would hold 8 bytes x 6000 x 6000 several times over.
    assert bound < 8 * width * width
    with pytest.raises(Abstention, match="GiB in the low-rank form"):
        capacity(responses, residuals, sigma_roll=1.0, memory_bytes=bound - 1)


def test_a_latent_of_thousands_of_numbers_is_scored_in_the_low_rank_form():
    rng = np.random.default_rng(4)
    width, episodes, rows = 4200, 6, 20
    push = (rng.standard_normal((BLOCK, width)) / np.sqrt(BLOCK)).astype(np.float32)
    blocks = rng.standard_normal((episodes * rows, BLOCK)).astype(np.float32)
    ptr = np.arange(episodes + 1) * rows
    z = rng.standard_normal((episodes * rows, width)).astype(np.float32)
    for e in range(episodes):
        for t in range(ptr[e], ptr[e + 1] - 1):
            z[t + 1] = 0.8 * z[t] + blocks[t] @ push + 0.5 * z[t + 1]
    probe = Probe.from_arrays(act_blocks=blocks, ep_ptr=ptr, state=z[:, :2], columns=("x", "y"))

    class Fading(LinearModel):
        def __init__(self):
            super().__init__(np.zeros((width, 1)), push)

        def predict(self, latents, actions, *, row_seeds=None):
            return 0.8 * latents[:, -1] + actions[:, -1] @ self.b

    wide = run(Fading(), probe, z, include="VI")
    assert wide.capacity_form == "gram" and wide.width_status == "uncalibrated width"
    assert wide.status == "abstained" and wide.m_emp > 0
    narrowed = run(Fading(), probe, z, include="VI", projection=192)
    assert narrowed.capacity_form == "dense" and narrowed.status == "ok"
    assert narrowed.width_status == "projected to 192" and len(narrowed.spectrum) == 192


def test_an_uncalibrated_width_abstains_and_prints_what_it_measured():
    probe, z, a, b = make_world(16, noise=0.3)
    got = run(LinearModel(a, b), probe, z)
    assert np.isnan(got.influence) and np.isnan(got.vis) and got.m_emp > 0
    assert got.width_status == "uncalibrated width"
    assert "uncalibrated width: latents of 16 numbers" in dict(got.reasons)["influence"]
    # 12 episodes × 29 windows, over 16 dimensions.
    assert got.samples_per_dimension == pytest.approx(12 * 29 / 16)
    assert 0 < got.nats_per_effective_dimension < got.m_emp
    assert "nats per effective dimension" in got.line()
    without = run(LinearModel(a, b), probe, z, exclude="I")
    assert without.status == "ok" and without.factors == "VS"
    with pytest.raises(UsageError, match="only narrows"):
        run(LinearModel(a, b), probe, z, projection=192)


def test_a_declared_projection_is_another_scale():
    probe, z, a, b = make_world(400, noise=0.3)
    got = run(LinearModel(a, b), probe, z, projection=192, include="VI")
    assert got.status == "ok" and "projected to 192" in got.scale
    bare = run(LinearModel(a, b), probe, z, include="VI")
    assert bare.status == "abstained"
    with pytest.raises(InterfaceMismatch, match="different scales"):
        require_comparable([got, bare])


# Factor sets and comparison


def test_factor_names_initials_and_strings_mean_the_same():
    assert (
        factor_set(exclude="sobriety")
        == factor_set(include="VI")
        == factor_set(include=("v", "influence"))
    )
    assert factor_set() == ("veracity", "influence", "sobriety")
    for wrong in ("validity", "x", "VX"):
        with pytest.raises(UsageError, match="initials"):
            factor_set(exclude=wrong)
    with pytest.raises(UsageError, match="no factor is left"):
        factor_set(exclude="VIS")


def test_partial_scores_are_never_compared_with_full_ones():
    probe, z, a, b = noisy()
    full, part = run(LinearModel(a, b), probe, z), run(LinearModel(a, b), probe, z, exclude="S")
    assert part.vis == pytest.approx(part.veracity * part.influence)
    assert np.isnan(part.sobriety) and part.p_hat != part.p_hat
    with pytest.raises(InterfaceMismatch, match="factor sets"):
        rank([full, part])
    assert [r.cell_id for r in rank([full, full])] == ["cell", "cell"]


# Veracity by hand


def test_clips_start_every_third_row_and_skip_missing_actions():
    blocks = np.zeros((20, 2), np.float32)
    blocks[8, 0] = np.nan
    probe = Probe.from_arrays(act_blocks=blocks, ep_ptr=[0, 12, 20])
    # Length 1 + 4 = 5: starts 0, 3, 6 and 12, 15; row 8 lies in the clips of 6 (6-10); 3 ends at 7.
    assert clip_starts(probe, history=1, curve=4).tolist() == [0, 3, 12, 15]


def test_d_tol_is_the_median_over_the_quiet_quarter_of_the_shell():
    rows, episodes = 6, 60
    x = np.tile(np.arange(rows, dtype=float), episodes)
    nuisance = np.repeat(np.arange(episodes, dtype=float), rows) * x
    z = np.stack([x * (1 + np.repeat(np.arange(episodes), rows)), 0 * x], axis=1).astype(np.float32)
    probe = Probe.from_arrays(
        act_blocks=np.zeros((len(x), 2)) + np.arange(len(x))[:, None],
        ep_ptr=np.arange(episodes + 1) * rows,
        state=np.stack([x, nuisance], axis=1),
        columns=("x", "n"),
    )
    model = LinearModel(np.eye(2), np.zeros((BLOCK, 2)))
    bank = bank_from_latents(model, probe, z)
    c = Criterion(task="t", tolerance=1.0, unit="m", graded=("x",), nuisance=("n",))
    got = tolerance_in_latent(probe, bank, c)
    # Only neighbours are 1 apart: 5 a episode, moving e in the nuisance and e + 1 in the latent.
    # The 0.25 quantile of the 300 displacements (5 of each 0 ... 59) is 14.75 (position 74.75 of
    # 0 ... 299: between values 14 and 15), so episodes 0 ... 14 stay: median latent step 8.
    assert got.num_candidates == 60 * (5 + 4 + 3 + 2 + 1)
    assert (got.num_pairs, got.nuisance_filtered) == (75, True)
    assert got.d_tol == pytest.approx(8.0)
    plain = tolerance_in_latent(probe, bank, c.replace(nuisance=()))
    assert plain.num_pairs == 300 and plain.d_tol == pytest.approx(30.5)


def test_veracity_is_the_gaussian_share_within_half_the_tolerance():
    # d_tol = 2 sigma: half of it is one sigma, and erf(1/√2) = 0.682689.
    assert veracity(2.0, 1.0) == pytest.approx(0.6826894921, abs=1e-9)
    assert np.isnan(veracity(float("nan"), 1.0)) and np.isnan(veracity(1.0, float("nan")))


# Searches


def test_gradient_probes_find_nothing_better_than_a_plan_that_reaches_the_goal(world):
    probe, z, a, b = world
    model = LinearModel(a, b)
    for search in ("mini-adamw", "single-adamw"):
        got = run(model, probe, z, include="S", search=search)
        assert got.search == search and np.isnan(got.gap_resolution)
        assert got.sobriety > 0.9


def test_gradient_probes_improve_on_a_biased_model():
    probe, z, a, b = noisy()
    got = run(LinearModel(a, b, bias=0.5), probe, z, include="S", search="single-adamw")
    # Six steps of 0.1 on a quadratic: every plan gets cheaper in the model's eyes.
    assert got.p_hat == 1.0 and min(got.gaps) > 0


def test_injected_noise_is_named_and_its_shape_checked():
    probe, z, a, b = noisy()
    model = LinearModel(a, b)
    source = NumpyNoise("cell")
    shape = (64, 128, STEP, BLOCK)
    arrays = [source.normal(shape).numpy() for _ in range(4)]
    given = run(model, probe, z, include="S", noise=GivenNoise(arrays))
    keyed = run(model, probe, z, include="S")
    assert given.gaps == keyed.gaps and given.noise.startswith("given")
    with pytest.raises(ValueError, match="noise array 0 has shape"):
        run(model, probe, z, include="S", noise=GivenNoise([np.zeros((1, 2))]))


# Probe, bank, bad input


def recorded(lengths=(20, 9, 23), *, pixels=True):
    rng = np.random.default_rng(0)
    total = sum(lengths)
    actions = np.arange(total * RAW, dtype=np.float32).reshape(total, RAW)
    actions[np.cumsum(lengths) - 1] = np.nan
    return ArrayEpisodes(
        lengths=np.asarray(lengths),
        actions=actions,
        pixels=rng.integers(0, 255, (total, 3, 1, 1), dtype=np.uint8) if pixels else None,
        state=rng.standard_normal((total, 2)),
        columns=(Column("x", "m"), Column("y", "m")),
    )


def test_a_probe_concatenates_raw_actions_and_skips_short_episodes():
    data = recorded()
    probe = build_probe(data)
    # 20 // 5 = 4 rows, 9 // 5 = 1 row (skipped, its id stays), 23 // 5 = 4 rows.
    assert probe.ep_ptr.tolist() == [0, 4, 8] and probe.ep_ids == (0, 1, 2)
    np.testing.assert_array_equal(probe.act_blocks[1], data.actions(0)[5:10].reshape(-1))
    # Episode 0 fills its rows exactly: the NaN of its last action stays in the last block.
    assert (
        np.isnan(probe.act_blocks[3, -RAW:]).all()
        and not np.isnan(probe.act_blocks[3, :-RAW]).any()
    )
    assert not np.isnan(probe.act_blocks[7]).any()
    np.testing.assert_allclose(probe.state[5], data.state(2)[5], rtol=1e-6)
    frames = probe.frames(np.array([3, 4, 5]))
    np.testing.assert_array_equal(frames[0], data.frames(0, [15])[0])
    np.testing.assert_array_equal(frames[1:], data.frames(2, [0, 5]))


def test_action_columns_are_normalised_one_by_one_without_their_missing_entries():
    blocks = np.array([[1, 10], [3, np.nan], [5, 30], [np.nan, 20]], np.float32)
    got = Probe.from_arrays(act_blocks=blocks, ep_ptr=[0, 4]).normalized_blocks
    # Column 0: 1, 3, 5: mean 3, std √(8/3) = 1.632993. Column 1: 10, 30, 20: mean 20, std 8.164966.
    np.testing.assert_allclose(got[:, 0], [-1.2247449, 0, 1.2247449, np.nan], rtol=1e-6)
    np.testing.assert_allclose(got[:, 1], [-1.2247449, np.nan, 1.2247449, 0], rtol=1e-6, atol=1e-7)


def test_a_probe_digest_changes_with_whatever_changes_a_score():
    data = recorded()
    base = build_probe(data).digest
    assert base == build_probe(recorded()).digest
    assert base != build_probe(data, num_episodes=2).digest
    assert base != build_probe(recorded((20, 9, 24))).digest


def test_the_bank_cache_cannot_be_stale(tmp_path):
    probe = build_probe(recorded())
    z = encode_bank(LinearModel(np.eye(8), np.zeros((BLOCK, 8))), probe, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    changed = LinearModel(np.eye(8), np.zeros((BLOCK, 8)), identity="other weights")
    changed.encode = lambda o: torch.ones(len(o["pixels"]), 8)
    fresh = encode_bank(changed, probe, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 and float(fresh.latents.min()) == 1.0
    with pytest.raises(EvidenceError, match="old latents would be scored"):
        z.check(changed, probe)
    with pytest.raises(EvidenceError, match="belongs to probe"):
        fresh.check(changed, build_probe(recorded(), num_episodes=2))
    file = sorted(tmp_path.iterdir())[0]
    with np.load(file) as f:
        np.savez(file, latents=f["latents"] + 1, content=f["content"])
    with pytest.raises(EvidenceError, match="altered"):
        [
            encode_bank(m, probe, cache=tmp_path)
            for m in (changed, LinearModel(np.eye(8), np.zeros((BLOCK, 8))))
        ]


def test_an_identity_that_does_not_follow_the_weights_is_caught(tmp_path):
    probe = build_probe(recorded())
    model = LinearModel(np.eye(8), np.zeros((BLOCK, 8)))
    encode_bank(model, probe, cache=tmp_path)
    plain = model.encode
    model.encode = lambda o: plain(o) * 1.01
    with pytest.raises(EvidenceError, match="identity does not follow its weights"):
        encode_bank(model, probe, cache=tmp_path)
    # And an old score is not brought back when only the predictor has changed.
    settings = ScoreSettings()
    before = score_key(model, CRITERION, probe, settings, "cell")
    assert before == score_key(model, CRITERION, probe, settings, "cell")
    model.gain = 2.0
    model.b = model.b + 0.1
    assert before != score_key(model, CRITERION, probe, settings, "cell")


def test_near_ties_are_the_anchors_whose_gap_is_below_the_threshold(world):
    probe, z, a, b = world
    record = run(LinearModel(a, b), probe, z, include="S")
    made = dataclasses.replace(
        record, gaps=(0.1, -0.3, -0.19, 0.2), anchors=(5, 9, 11, 12), near_tie_below=0.2
    )
    assert made.near_ties == (5, 11) and made.to_dict()["near_ties"] == [5, 11]
    assert dataclasses.replace(made, near_tie_below=float("nan")).near_ties == ()
    # More than a quarter of the gaps: the table says that one search is not enough.
    assert "2 of 4 gaps are below" in table([made])


def test_a_kept_score_is_the_score(tmp_path, world):
    probe, z, a, b = world
    record = run(LinearModel(a, b), probe, z, baselines=True, exclude="I")
    assert kept_score(tmp_path, "k") is None
    keep_score(tmp_path, "k", record)
    again = kept_score(tmp_path, "k")
    assert again.to_dict() == record.to_dict() and again.gaps == record.gaps
    assert np.isnan(again.influence) and again.reasons == record.reasons


def test_the_last_batch_of_frames_is_encoded_like_the_others():
    probe = build_probe(recorded())
    model = LinearModel(np.eye(8), np.zeros((BLOCK, 8)))
    sizes = []
    encode = model.encode
    model.encode = lambda o: sizes.append(len(o["pixels"])) or encode(o)
    bank = encode_bank(model, probe, batch=3)
    assert sizes == [3, 3, 3] and len(bank.latents) == 8


def test_latents_of_another_checkpoint_are_refused():
    probe = build_probe(recorded())
    model = LinearModel(np.eye(8), np.zeros((BLOCK, 8)))
    with pytest.raises(UsageError, match=r"expected \(8, 8\)"):
        bank_from_latents(model, probe, np.zeros((8, 16)))
    with pytest.raises(UsageError, match="latent 2 holds NaN"):
        z = np.zeros((8, 8))
        z[2, 3] = np.nan
        bank_from_latents(model, probe, z)


def test_missing_columns_and_actions_are_named(world):
    probe, z, a, b = world
    with pytest.raises(UsageError, match="no graded column 'pos'; it has x, y"):
        run(LinearModel(a, b), probe, z, criterion=CRITERION.replace(graded=("pos",)))
    empty = dataclasses.replace(probe, act_blocks=np.full_like(probe.act_blocks, np.nan))
    with pytest.raises(UsageError, match="every action block"):
        empty.normalized_blocks  # noqa: B018
    endless = probe.act_blocks.copy()
    endless[7, 1] = np.inf
    with pytest.raises(UsageError, match="probe row 7 holds an infinity"):
        dataclasses.replace(probe, act_blocks=endless)
    wide = dataclasses.replace(probe, act_blocks=np.zeros((probe.num_rows, 12), np.float32))
    with pytest.raises(UsageError, match="blocks have 12 numbers but the model reads 10"):
        run(LinearModel(a, b), wide, z)


def test_a_history_longer_than_the_episodes_is_an_explained_abstention(world):
    probe, z, a, b = world
    got = run(LinearModel(a, b, history=40), probe, z)
    assert got.status == "abstained" and np.isnan(got.vis)
    reasons = dict(got.reasons)
    assert "no clip of 40 + 8 rows" in reasons["veracity"]
    assert "0 window(s) of 40 rows" in reasons["influence"]
    assert "longest episode has 30 rows" in reasons["sobriety"]


def test_a_model_that_cannot_start_from_one_frame_abstains_from_planning_factors(world):
    probe, z, a, b = world
    got = run(LinearModel(a, b, history=2, history_min=2), probe, z)
    assert np.isfinite(got.veracity) and np.isnan(got.influence) and np.isnan(got.sobriety)
    assert "one frame" in dict(got.reasons)["influence"]


def test_a_horizon_beyond_the_curve_is_refused():
    with pytest.raises(UsageError, match="horizon = 10 blocks is beyond curve = 8"):
        CRITERION.replace(horizon=10)


def test_scoring_from_recorded_episodes_runs_end_to_end():
    lengths = (60,) * 8
    rng = np.random.default_rng(5)
    actions = rng.standard_normal((480, RAW)).astype(np.float32)
    actions[np.cumsum(lengths) - 1] = np.nan
    state = np.cumsum(rng.standard_normal((480, 2)), axis=0)
    pixels = rng.integers(0, 255, (480, 3, 8, 4), dtype=np.uint8)
    data = ArrayEpisodes(
        lengths=np.asarray(lengths),
        actions=actions,
        pixels=pixels,
        state=state,
        columns=(Column("x", "m"), Column("y", "m")),
    )
    model = LinearModel(0.5 * np.eye(WIDTH), rng.standard_normal((BLOCK, WIDTH)))
    got = score(model, CRITERION.replace(tolerance=3.0), data, epoch=4, training_loss=0.25)
    assert got.status == "ok" and 0 <= got.vis <= 1
    base = got.baselines
    assert base.epoch == 4 and base.training_loss == 0.25
    assert 1 <= base.effective_rank <= WIDTH and base.embedding_spread > 0
    # Frames are independent noise: predicting half of the last one beats predicting no change.
    assert base.one_step_to_frozen < 1.0


# Criteria


def test_every_shipped_criterion_states_its_numbers():
    assert set(criterion_names()) >= {"tworoom", "pusht", "reacher", "cube", "maze2d"}
    numbers = {
        n: (criterion(n).tolerance, criterion(n).horizon, criterion(n).curve)
        for n in ("tworoom", "pusht", "reacher", "cube", "maze2d")
    }
    # spec/viscore.md section 9.
    assert numbers == {
        "tworoom": (16, 5, 8),
        "pusht": (20, 5, 15),
        "reacher": (0.05, 5, 15),
        "cube": (0.04, 5, 15),
        "maze2d": (0.5, 5, 15),
    }
    assert all(criterion(n).source for n in criterion_names())
    with pytest.raises(UsageError, match="Known: cube"):
        criterion("chess")


def test_a_users_criterion_is_read_from_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('task = "mine"\ntolerance = 2.0\nunit = "cm"\ngraded = ["tip[1]"]\n')
    mine = load_criterion(file)
    assert mine.horizon == 5 and mine.targets == ("tip[1]",)
    file.write_text('task = "mine"\ntolerance = 2\nunit = "cm"\ngraded = ["x"]\nwidth = 3\n')
    with pytest.raises(UsageError, match="width: there is no such field"):
        load_criterion(file)
    file.write_text('task = "mine"\ntolerance = -2\nunit = "cm"\ngraded = ["x"]\n')
    with pytest.raises(UsageError, match=r"tolerance: .* \(got -2"):
        load_criterion(file)
    file.write_text("task =")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_criterion(file)


def test_wide_columns_are_found_under_their_readers_spelling():
    from dreamcheck.diagnostics.viscore.criteria import pick

    c = criterion("tworoom")
    assert pick(("t", "pos_agent_0", "pos_agent_1"), c.graded, criterion=c, what="graded") == [1, 2]
    assert pick(("agent_x", "agent_y", "state_0"), c.graded, criterion=c, what="graded") == [0, 1]


# Tables and the training callback


def test_a_table_names_the_limiting_factor_and_refuses_mixed_scales():
    probe, z, a, b = noisy()
    bank = bank_from_latents(LinearModel(a, b), probe, z)
    settings = ScoreSettings(baselines=False)
    good, biased = (
        score(LinearModel(a, b, gain=g), CRITERION, probe, bank=bank, cell_id=n, settings=settings)
        for n, g in (("good", 1.0), ("deaf", 0.0))
    )
    text = table([biased, good])
    lines = text.splitlines()
    assert lines[2].startswith("good") and lines[3].startswith("deaf")
    assert "influence" in lines[3] and "factors VIS" in lines[0]
    header, first, second = to_csv([biased, good]).splitlines()
    assert header.startswith("cell_id,run,status,vis") and first.startswith("deaf,deaf,ok,0.0,")
    part = dataclasses.replace(good, factors="VI")
    with pytest.raises(InterfaceMismatch, match="factor sets"):
        table([good, part])


def test_the_callback_scores_on_one_probe_and_keeps_its_table(tmp_path, world):
    probe, z, a, b = world
    model = LinearModel(a, b)
    model.encode = lambda o: torch.from_numpy(z[o["pixels"][:, 0, 0, 0].long()])
    rows = np.arange(probe.num_rows)
    framed = dataclasses.replace(
        probe,
        frames=lambda i: np.broadcast_to(
            (rows[i] % 256).astype(np.uint8)[:, None, None, None], (len(i), 3, 1, 1)
        ).copy(),
    )
    callback = ScoreCallback(
        CRITERION,
        framed,
        run="run",
        every=2,
        settings=ScoreSettings(include="V", baselines=True),
        csv=tmp_path / "scores.csv",
    )
    assert callback(model, epoch=1) is None
    record = callback(model, epoch=2, training_loss=0.5)
    assert record.cell_id == "run__epoch2" and record.baselines.training_loss == 0.5
    callback(model, epoch=4)
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 3
    assert len({r.probe_digest for r in callback.records}) == 1
    # A run that was stopped goes on in the same file; an epoch scored again is replaced.
    later = ScoreCallback(
        CRITERION,
        framed,
        run="run",
        settings=ScoreSettings(include="V"),
        csv=tmp_path / "scores.csv",
    )
    later(model, epoch=4)
    later(model, epoch=5)
    names = [line.split(",")[0] for line in (tmp_path / "scores.csv").read_text().splitlines()]
    assert names == ["cell_id", "run__epoch2", "run__epoch4", "run__epoch5"]
    (tmp_path / "scores.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="other columns"):
        ScoreCallback(CRITERION, framed, run="run", csv=tmp_path / "scores.csv")
