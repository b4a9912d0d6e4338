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

import torch
import torch.nn.functional as F
from torch import Tensor

from dreamcheck.models.lewm import Head, LeWMNet, PredictorLayer


@dataclass(frozen=True)
class _Layer:
    """Weights of one predictor layer, norms folded, in the precision of the matrix products."""

    heads: int
    modulation: tuple[Tensor, Tensor]
    query: tuple[Tensor, Tensor]
    key_value: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]


class LeWMRollout:
    """The fast path of one network; build it again after the weights change.

    Args:
        dtype: of the matrix products. The residual stream, norms and softmax stay float32.
    """

    def __init__(self, net: LeWMNet, *, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.history = net.config.history
        self._predictor = net.predictor
        self._layers = [self._folded(layer) for layer in net.predictor.layers]
        self._head = self._folded_head(net.prediction_head)
        norm = net.predictor.norm
        self._norm = (norm.weight.detach(), norm.bias.detach(), norm.eps)

    def _cast(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return (
            weight.detach().to(self.dtype).contiguous(),
            bias.detach().to(self.dtype).contiguous(),
        )

    def _folded(self, layer: PredictorLayer) -> _Layer:
        with torch.no_grad():
            n1, n2 = layer.attention_norm, layer.mlp_norm
            qkv = layer.qkv.weight * n1.weight
            qkv_bias = layer.qkv.weight @ n1.bias
            up = layer.up.weight * n2.weight
            up_bias = layer.up.bias + layer.up.weight @ n2.bias
            inner = len(qkv) // 3
            return _Layer(
                heads=layer.heads,
                modulation=self._cast(layer.modulation.weight, layer.modulation.bias),
                query=self._cast(qkv[:inner], qkv_bias[:inner]),
                key_value=self._cast(qkv[inner:], qkv_bias[inner:]),
                out=self._cast(layer.out.weight, layer.out.bias),
                up=self._cast(up, up_bias),
                down=self._cast(layer.down.weight, layer.down.bias),
            )

    def _folded_head(self, head: Head) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        with torch.no_grad():
            norm = head.norm
            assert norm.running_var is not None and norm.running_mean is not None
            # In float64: the running variance may be tiny, and the fold divides by its root.
            scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
            weight = head.up.weight.double() * scale[:, None]
            bias = (head.up.bias.double() - norm.running_mean.double()) * scale + norm.bias.double()
            up = (weight.to(self.dtype).contiguous(), bias.to(self.dtype))
            return up, self._cast(head.down.weight, head.down.bias)

    def _linear(self, x: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
        return F.linear(x.to(self.dtype), *weights)

    def _mlp(self, x: Tensor, layer: _Layer, modulation: Tensor) -> Tensor:
        """x [N, t, width] after the MLP; modulation [N, t, 6, width]."""
        shift, scale, gate = modulation[..., 3, :], modulation[..., 4, :], modulation[..., 5, :]
        y = self._modulated(x, shift, scale)
        y = F.gelu(self._linear(y, layer.up))
        return torch.addcmul(x, gate, self._linear(y, layer.down).float())

    def _modulated(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        width = x.shape[-1:]
        y = torch.addcmul(shift, F.layer_norm(x, width, eps=1e-6), scale + 1)
        return F.layer_norm(y, width, eps=1e-5)

    def _attend(
        self, x: Tensor, query: Tensor, keys: Tensor, values: Tensor, layer: _Layer, gate: Tensor
    ) -> Tensor:
        """x [N, t, width] plus attention; query [N, t, inner] sees all of keys [N, s, inner].

        With t > 1 token i of the query is token s - t + i of the keys, and sees none after it.
        """
        n, t, inner = query.shape
        s = keys.shape[1]
        q, k, v = (
            m.view(n, m.shape[1], layer.heads, -1).transpose(1, 2) for m in (query, keys, values)
        )
        if t == 1:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mask = torch.ones(t, s, dtype=torch.bool, device=q.device).tril(s - t)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mixed = mixed.transpose(1, 2).reshape(n, t, inner)
        return torch.addcmul(x, gate, self._linear(mixed, layer.out).float())

    def _first_token(self, x: Tensor, value: Tensor, layer: _Layer, gate: Tensor) -> Tensor:
        """The window's first token attends to itself alone: its attention is its value."""
        return torch.addcmul(x, gate, self._linear(value, layer.out).float())

    def _key_value(self, y: Tensor, layer: _Layer) -> tuple[Tensor, Tensor]:
        key, value = self._linear(y, layer.key_value).chunk(2, dim=-1)
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
                query = self._linear(y, layer.query)
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
                query = self._linear(y[:, -1:], layer.query)
                x = self._attend(x[:, -1:], query, key, value, layer, m[:, -1:, 2])
                return self._mlp(x, layer, m[:, -1:])
            if h > 1:
                first = self._first_token(x[:, :1], value[:, :1], layer, m[:, :1, 2])
                query = self._linear(y[:, 1:], layer.query)
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
        return self._linear(F.gelu(self._linear(y, up)), down).float()

    def modulations(self, actions: Tensor) -> list[Tensor]:
        """[N, T, width] -> per layer [N, T, 6, width]: once for a whole rollout."""
        active = F.silu(actions)
        return [
            self._linear(active, layer.modulation).float().unflatten(-1, (6, -1))
            for layer in self._layers
        ]

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
