"""LeWM rollouts that compute nothing twice and nothing that is not read.

A causal predictor's windows are 1, 2, 3, 3, 3 tokens on a horizon of five. While the window still
grows, a token's position stays the same and so does everything computed for it: only the new token
is computed and the earlier ones' keys and values are kept. Once the window moves, every position
changes and nothing can be kept, but then the last layer is read at the last token only: of the
others it needs keys and values. The first token of a window attends to itself alone, so it needs
no query. Modulations are computed once per block instead of once per window it is in.

Exact in real arithmetic; in float32 it differs from the generic path by rounding only (the
maximum relative cost error is tested at 1e-5). Affine parameters of the norms that stand before a
matrix product are folded into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from dreamcheck.models.lewm import Head, LeWMNet, PredictorLayer


class _Product:
    """One matrix product with its bias, the weights packed once where the processor allows it.

    Packed weights save a fifth of a product of a few hundred rows. They are used on a CPU, without
    gradients, and only where they were found to give the plain product's values.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.weight = weight.detach().to(dtype).contiguous()
        self.bias = bias.detach().to(dtype).contiguous()
        self._packed = _pack(self.weight, self.bias)

    def __call__(self, x: Tensor, *, gelu: bool = False) -> Tensor:
        """[..., in] -> [..., out], through a GELU when asked."""
        if self._packed is None or torch.is_grad_enabled():
            y = F.linear(x.to(self.weight.dtype), self.weight, self.bias)
            return F.gelu(y) if gelu else y
        return _packed_product(x.to(self.weight.dtype), self._packed, self.bias, gelu)


def _packed_product(x: Tensor, packed: Tensor, bias: Tensor, gelu: bool) -> Tensor:
    name, kind = ("gelu", "none") if gelu else ("none", "")
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, name, [], kind)
    return result


def _pack(weight: Tensor, bias: Tensor) -> Tensor | None:
    """The packed weights, or None where they are not to be had or not to be trusted."""
    if weight.device.type != "cpu":
        return None
    tolerance = 1e-5 if weight.dtype == torch.float32 else 0.05
    try:
        with torch.no_grad():
            packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 300)
            x = torch.linspace(-1, 1, 2 * weight.shape[1]).view(2, -1).to(weight.dtype)
            for gelu in (False, True):
                wanted = F.linear(x, weight, bias)
                wanted = F.gelu(wanted) if gelu else wanted
                if not torch.allclose(
                    _packed_product(x, packed, bias, gelu), wanted, rtol=tolerance, atol=tolerance
                ):
                    return None
    except (AttributeError, RuntimeError, TypeError):
        return None
    return packed


SHORT = 4
"""Windows up to this many tokens go without the attention kernel."""


@dataclass(frozen=True)
class _Layer:
    """Weights of one predictor layer, norms folded, in the precision of the matrix products."""

    heads: int
    modulation: _Product
    query: _Product
    key_value: _Product
    out: _Product
    up: _Product
    down: _Product


class LeWMRollout:
    """The fast path of one network as its weights are now; see ``rollout_of``.

    Args:
        dtype: of the matrix products. The residual stream, norms and softmax stay float32.
    """

    def __init__(self, net: LeWMNet, *, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.history = net.config.history
        self._predictor = net.predictor
        self._layers = [self._folded(cast(PredictorLayer, x)) for x in net.predictor.layers]
        self._head = self._folded_head(net.prediction_head)
        norm = net.predictor.norm
        self._norm = (norm.weight.detach(), norm.bias.detach(), norm.eps)

    def _product(self, weight: Tensor, bias: Tensor) -> _Product:
        return _Product(weight, bias, self.dtype)

    def _folded(self, layer: PredictorLayer) -> _Layer:
        with torch.no_grad():
            n1, n2 = layer.attention_norm, layer.mlp_norm
            qkv = layer.qkv.weight * n1.weight
            qkv_bias = layer.qkv.weight @ n1.bias
            up = layer.up.weight * n2.weight
            up_bias = layer.up.bias + layer.up.weight @ n2.bias
            inner = len(qkv) // 3
            # A scale is applied as 1 + scale: the 1 goes into its bias (chunks 1 and 4 of six).
            # Not in bfloat16, which would round 1.01 to a multiple of 1/128.
            bias = layer.modulation.bias.clone().view(6, -1)
            if self.dtype == torch.float32:
                bias[[1, 4]] += 1.0
            bias = bias.flatten()
            return _Layer(
                heads=layer.heads,
                modulation=self._product(layer.modulation.weight, bias),
                query=self._product(qkv[:inner], qkv_bias[:inner]),
                key_value=self._product(qkv[inner:], qkv_bias[inner:]),
                out=self._product(layer.out.weight, layer.out.bias),
                up=self._product(up, up_bias),
                down=self._product(layer.down.weight, layer.down.bias),
            )

    def _folded_head(self, head: Head) -> tuple[_Product, _Product]:
        with torch.no_grad():
            norm = head.norm
            assert norm.running_var is not None and norm.running_mean is not None
            # In float64: the running variance may be tiny, and the fold divides by its root.
            scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
            weight = head.up.weight.double() * scale[:, None]
            bias = (head.up.bias.double() - norm.running_mean.double()) * scale + norm.bias.double()
            up = self._product(weight.float(), bias.float())
            return up, self._product(head.down.weight, head.down.bias)

    def _mlp(self, x: Tensor, layer: _Layer, modulation: Tensor) -> Tensor:
        """x [N, t, width] after the MLP; modulation [N, t, 6, width]."""
        shift, scale, gate = modulation[..., 3, :], modulation[..., 4, :], modulation[..., 5, :]
        y = self._modulated(x, shift, scale)
        y = layer.up(y, gelu=True)
        return torch.addcmul(x, gate, layer.down(y).float())

    def _modulated(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        width = x.shape[-1:]
        y = torch.addcmul(shift, F.layer_norm(x, width, eps=1e-6), scale)
        return F.layer_norm(y, width, eps=1e-5)

    def _attend(
        self, x: Tensor, query: Tensor, keys: Tensor, values: Tensor, layer: _Layer, gate: Tensor
    ) -> Tensor:
        """x [N, t, width] plus attention; query [N, t, inner] sees all of keys [N, s, inner].

        With t > 1 token i of the query is token s - t + i of the keys, and sees none after it.
        """
        n, t, inner = query.shape
        s = keys.shape[1]
        if s <= SHORT:
            mixed = self._attend_short(query, keys, values, layer)
        else:
            q, k, v = (
                m.view(n, m.shape[1], layer.heads, -1).transpose(1, 2)
                for m in (query, keys, values)
            )
            mask = torch.ones(t, s, dtype=torch.bool, device=q.device).tril(s - t)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            mixed = mixed.transpose(1, 2).reshape(n, t, inner)
        return torch.addcmul(x, gate, layer.out(mixed).float())

    def _attend_short(self, query: Tensor, keys: Tensor, values: Tensor, layer: _Layer) -> Tensor:
        """Attention over a handful of tokens as sums of products: no kernel call per head."""
        n, t, inner = query.shape
        s = keys.shape[1]
        k, v = (m.view(n, s, layer.heads, -1) for m in (keys, values))
        scale = k.shape[-1] ** -0.5
        out = []
        for i in range(t):
            seen = s - t + 1 + i
            q = query[:, i].view(n, 1, layer.heads, -1)
            weights = ((q * k[:, :seen]).sum(dim=-1, keepdim=True) * scale).softmax(dim=1)
            out.append((weights * v[:, :seen]).sum(dim=1).reshape(n, inner))
        return torch.stack(out, dim=1)

    def _first_token(self, x: Tensor, value: Tensor, layer: _Layer, gate: Tensor) -> Tensor:
        """The window's first token attends to itself alone: its attention is its value."""
        return torch.addcmul(x, gate, layer.out(value).float())

    def _key_value(self, y: Tensor, layer: _Layer) -> tuple[Tensor, Tensor]:
        key, value = layer.key_value(y).chunk(2, dim=-1)
        return key, value

    def _grow(
        self, x: Tensor, at: int, modulations: list[Tensor], cache: list[list[Tensor]]
    ) -> Tensor:
        """One new token x [N, 1, width] at position ``at``; its output, with the cache extended."""
        for layer, modulation, kept in zip(self._layers, modulations, cache, strict=True):
            m = modulation[:, at : at + 1]
            y = self._modulated(x, m[..., 0, :], m[..., 1, :])
            key, value = self._key_value(y, layer)
            if at == 0:
                kept[:] = [key, value]
                x = self._first_token(x, value, layer, m[..., 2, :])
            else:
                kept[0] = torch.cat([kept[0], key], dim=1)
                kept[1] = torch.cat([kept[1], value], dim=1)
                query = layer.query(y)
                x = self._attend(x, query, kept[0], kept[1], layer, m[..., 2, :])
            x = self._mlp(x, layer, m)
        return x

    def _window(self, x: Tensor, start: int, modulations: list[Tensor]) -> Tensor:
        """A whole window x [N, h, width] whose first token is block ``start``; the last's output."""
        h = x.shape[1]
        final = len(self._layers) - 1
        for i, (layer, modulation) in enumerate(zip(self._layers, modulations, strict=True)):
            m = modulation[:, start : start + h]
            y = self._modulated(x, m[..., 0, :], m[..., 1, :])
            key, value = self._key_value(y, layer)
            if i == final:
                query = layer.query(y[:, -1:])
                x = self._attend(x[:, -1:], query, key, value, layer, m[:, -1:, 2])
                return self._mlp(x, layer, m[:, -1:])
            if h > 1:
                first = self._first_token(x[:, :1], value[:, :1], layer, m[:, :1, 2])
                query = layer.query(y[:, 1:])
                rest = self._attend(x[:, 1:], query, key, value, layer, m[:, 1:, 2])
                x = torch.cat([first, rest], dim=1)
            else:
                x = self._first_token(x, value, layer, m[..., 2, :])
            x = self._mlp(x, layer, m)
        raise AssertionError("a predictor has at least one layer")

    def _project(self, x: Tensor) -> Tensor:
        """[N, width] -> the predicted latent [N, D]."""
        weight, bias, eps = self._norm
        y = F.layer_norm(x, x.shape[-1:], weight, bias, eps)
        up, down = self._head
        return down(up(y, gelu=True)).float()

    def modulations(self, actions: Tensor) -> list[Tensor]:
        """[N, T, width] -> per layer [N, T, 6, width]: once for a whole rollout."""
        active = F.silu(actions)
        made = [layer.modulation(active).float().unflatten(-1, (6, -1)) for layer in self._layers]
        if self.dtype == torch.float32:
            return made
        for m in made:
            m[..., 1, :].add_(1.0)
            m[..., 4, :].add_(1.0)
        return made

    def rollout(self, latents: Tensor, actions: Tensor) -> Tensor:
        """[N, h, D] observed, [N, h - 1 + K, E] embedded blocks -> [N, K, D]."""
        n, h, _ = latents.shape
        steps = actions.shape[1] - h + 1
        modulations = self.modulations(actions)
        positions = self._predictor.positions[0]
        read = self._predictor.read
        track = [latents[:, i] for i in range(h)]
        cache: list[list[Tensor]] = [[] for _ in self._layers]
        grown = 0
        for step in range(steps):
            total = h + step
            if total <= self.history:
                while grown < total:
                    token = read(track[grown]) + positions[grown]
                    x = self._grow(token[:, None], grown, modulations, cache)
                    grown += 1
            else:
                start = total - self.history
                window = read(torch.stack(track[start:], dim=1)) + positions
                x = self._window(window, start, modulations)
            track.append(self._project(x[:, 0]))
        return torch.stack(track[h:], dim=1)


_BUILT: WeakKeyDictionary[LeWMNet, dict[torch.dtype, tuple[tuple[int, ...], LeWMRollout]]] = (
    WeakKeyDictionary()
)


def rollout_of(net: LeWMNet, dtype: torch.dtype) -> LeWMRollout:
    """The network's fast path, built once and again whenever torch counts a change to a tensor."""
    versions = tuple(
        number
        for tensor in (*net.parameters(), *net.buffers())
        for number in (tensor.data_ptr(), tensor._version)
    )
    built = _BUILT.setdefault(net, {})
    if dtype not in built or built[dtype][0] != versions:
        built[dtype] = (versions, LeWMRollout(net, dtype=dtype))
    return built[dtype][1]
