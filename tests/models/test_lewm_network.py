"""The LeWM network: its size, its initial state, and what may influence what."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from dreamcheck.models.lewm import LeWMConfig, LeWMNet, attend, count_parameters
from dreamcheck.training.recipe import load_recipe

SMALL = LeWMConfig(
    image_size=16, patch_size=8, encoder_width=24, encoder_depth=2, encoder_heads=3,
    encoder_mlp=32, head_hidden=20, latent_width=6, action_width=4, action_smoothed=5,
    action_hidden=16, predictor_width=24, predictor_depth=2, predictor_heads=2,
    predictor_head_width=8, predictor_mlp=32, history=3,
)  # fmt: skip


def small_net(*, seed: int = 0, config: LeWMConfig = SMALL) -> LeWMNet:
    """A network whose gates are open: at the initial zero gates nothing would be attended to."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LeWMNet(config)
        for layer in net.predictor.layers:
            torch.nn.init.normal_(layer.modulation.weight, std=0.2)
            torch.nn.init.normal_(layer.modulation.bias, std=0.2)
    return net.eval()


def test_the_standard_network_has_18034478_parameters():
    with torch.device("meta"):
        net = LeWMNet(LeWMConfig())
    assert count_parameters(net) == 18_034_478
    parts = {name: count_parameters(part) for name, part in net.named_children()}
    assert parts == {
        "encoder": 5_501_376,
        "projector": 792_768,
        "action_embedder": 156_206,
        "predictor": 10_791_360,
        "prediction_head": 792_768,
    }


def test_the_parameters_of_one_encoder_layer_are_those_of_the_table():
    # 2 LayerNorms, q, k, v and output with bias, MLP 192 -> 768 -> 192:
    # 2*384 + 4*(192^2 + 192) + 192*768 + 768 + 768*192 + 192 = 444,864
    with torch.device("meta"):
        net = LeWMNet(LeWMConfig())
    assert count_parameters(net.encoder.layers[0]) == 444_864


def test_the_shipped_recipe_fits_eight_megabytes_in_float32():
    with torch.device("meta"):
        net = LeWMNet(load_recipe("tworoom-small").model)
    assert 4 * count_parameters(net) < 6.7e6


def test_predictions_start_independent_of_actions_because_gates_are_zero():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = LeWMNet(SMALL).eval()
    z, a, b = torch.randn(4, 3, 6), torch.randn(4, 3, 4), torch.randn(4, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(net(z, net.embed_actions(a)), net(z, net.embed_actions(b)))


def test_a_later_action_or_latent_never_changes_an_earlier_prediction():
    net = small_net()
    z, a = torch.randn(5, 3, 6), torch.randn(5, 3, 4)
    with torch.no_grad():
        first = net(z, net.embed_actions(a))
        for changed in (1, 2):
            z2, a2 = z.clone(), a.clone()
            z2[:, changed:] += 1.0
            a2[:, changed:] -= 1.0
            second = net(z2, net.embed_actions(a2))
            torch.testing.assert_close(second[:, :changed], first[:, :changed])
            assert (second[:, changed:] - first[:, changed:]).abs().max() > 1e-3


def test_action_i_changes_prediction_i():
    # P12: actions[:, i] is the block that leaves latent i, so prediction i is the first to see it.
    net = small_net()
    z, a = torch.randn(5, 3, 6), torch.randn(5, 3, 4)
    for i in range(3):
        a2 = a.clone()
        a2[:, i] += 1.0
        with torch.no_grad():
            moved = (net(z, net.embed_actions(a2)) - net(z, net.embed_actions(a))).abs()
        assert moved[:, i].amax() > 1e-3 and (i == 0 or moved[:, :i].amax() == 0)


def test_the_last_prediction_alone_equals_that_of_the_whole_pass():
    net = small_net()
    for h in (1, 2, 3):
        z, a = torch.randn(40, h, 6), torch.randn(40, h, 4)
        with torch.no_grad():
            e = net.embed_actions(a)
            torch.testing.assert_close(net.predict_last(z, e), net(z, e)[:, -1])


def test_patches_cut_out_and_multiplied_equal_the_stored_convolution():
    encoder = small_net().encoder
    x = torch.randn(2, 3, 16, 16)
    seen = []
    encoder.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        encoder(x)
        tokens = encoder.patch(x).flatten(2).transpose(1, 2) + encoder.positions[:, 1:]
    torch.testing.assert_close(seen[0][:, 1:], tokens)


def test_written_out_attention_equals_the_fused_kernel():
    q, k, v = torch.randn(3, 2, 2, 5, 4).unbind(0)
    for causal in (False, True):
        fused = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        assert torch.is_grad_enabled()
        torch.testing.assert_close(attend(q, k, v, causal=causal), fused)


def test_a_frame_with_more_patches_gets_interpolated_positions():
    encoder = small_net().encoder
    with torch.no_grad():
        assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, 24)
        # A constant field of positions stays constant under interpolation.
        encoder.positions.fill_(0.5)
        torch.testing.assert_close(encoder._positions_for(4), torch.full((1, 17, 24), 0.5))


def test_sizes_that_cannot_be_built_name_the_field():
    with pytest.raises(ValidationError, match="patch_size"):
        LeWMConfig(image_size=224, patch_size=15)
    with pytest.raises(ValidationError, match="encoder_heads"):
        LeWMConfig(encoder_width=190)
    with pytest.raises(ValidationError, match="_target_"):
        LeWMConfig.model_validate({"_target_": "os.system"})
