"""LeWM rollouts that compute nothing twice and nothing that is not read.

A causal predictor's windows are 1, 2, 3, 3, 3 tokens on a horizon of five. While the window still
grows, a token's position stays the same and so does everything computed for it: only the new token
is computed and the earlier ones' keys and values are kept. Once the window moves, every position
changes and nothing can be kept, but then the last layer is read at the last token only: of the
others it needs keys and values. The first token of a window attends to itself alone: it needs no
query, and its value and output products are one small one. Modulations are computed once per block
instead of once per window it is in.

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


# One allocation of nearly 32 MiB, given back at once: glibc then keeps freed blocks up to that size
# instead of returning them to the system, and a rollout does not fault the same pages in again
# and again (a tenth of its time). It raises its threshold to the largest mapped block ever freed.
_KEPT_BYTES = 32 * 1024**2 - 64 * 1024


_SCALES = (1, 4)
"""Which of a modulation's six chunks are scales: shift, scale, gate, and again for the MLP."""


@dataclass(frozen=True)
class _Layer:
    """Weights of one predictor layer, norms folded, in the precision of the matrix products.

    query: carries the attention's 1 / sqrt(head width). alone: value and out as one product, for
    a token that attends to itself only.
    """

    heads: int
    modulation: _Product
    query: _Product
    key_value: _Product
    out: _Product
    alone: _Product
    up: _Product
    down: _Product


class LeWMRollout:
    """The fast path of one network as its weights are now; see ``rollout_of``.

    Tokens come first in every shape, so that one token of all rows is one contiguous matrix.

    Args:
        dtype: of the layers' matrix products and attention. The stream between them, the norms
            and the head are float32.
    """

    def __init__(self, net: LeWMNet, *, dtype: torch.dtype = torch.float32) -> None:
        torch.empty(_KEPT_BYTES, dtype=torch.uint8)
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
            scale = (inner // layer.heads) ** -0.5
            value, out = qkv[2 * inner :].double(), layer.out.weight.double()
            alone_bias = out @ qkv_bias[2 * inner :].double() + layer.out.bias.double()
            # A scale is applied as 1 + scale: the 1 goes into its bias. Not in bfloat16, which
            # would round 1.01 to a multiple of 1/128.
            bias = layer.modulation.bias.clone().view(6, -1)
            if self.dtype == torch.float32:
                bias[list(_SCALES)] += 1.0
            bias = bias.flatten()
            return _Layer(
                heads=layer.heads,
                modulation=self._product(layer.modulation.weight, bias),
                query=self._product(qkv[:inner] * scale, qkv_bias[:inner] * scale),
                key_value=self._product(qkv[inner:], qkv_bias[inner:]),
                out=self._product(layer.out.weight, layer.out.bias),
                alone=self._product((out @ value).float(), alone_bias.float()),
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
            # Float32 always: 4 % of the products, and most of what bfloat16 would get wrong, since
            # nothing after them averages their rounding out.
            down = _Product(head.down.weight, head.down.bias, torch.float32)
            return _Product(weight.float(), bias.float(), torch.float32), down

    def _part(self, m: Tensor, i: int) -> Tensor:
        """Chunk i of a modulation [..., 6, width]: float32 [..., width]."""
        part = m[..., i, :].float()
        # In float32 the 1 of a scale is in its bias already.
        return part if self.dtype == torch.float32 or i not in _SCALES else part + 1.0

    def _mlp(self, x: Tensor, layer: _Layer, m: Tensor) -> Tensor:
        """x [..., width] after the MLP; m [..., 6, width]."""
        y = layer.up(self._modulated(x, m, 3), gelu=True)
        return torch.addcmul(x, self._part(m, 5), layer.down(y).float())

    def _modulated(self, x: Tensor, m: Tensor, first: int) -> Tensor:
        """x normed, shifted and scaled by chunks ``first`` and the next of m, normed again."""
        width = x.shape[-1:]
        y = F.layer_norm(x, width, eps=1e-6)
        y = torch.addcmul(self._part(m, first), y, self._part(m, first + 1))
        return F.layer_norm(y, width, eps=1e-5)

    def _attended(self, query: Tensor, window: Tensor, layer: _Layer) -> Tensor:
        """What the queries of the last tokens read from the window: [t, N, inner].

        query: [t, N, inner]. window: keys and values [s, N, 2 x inner]; query i is of token
        s - t + i, and sees none after it.
        """
        t, s, n = len(query), len(window), query.shape[1]
        q = query.view(t, n, layer.heads, -1).permute(1, 2, 0, 3)
        k, v = window.view(s, n, 2, layer.heads, -1).permute(2, 1, 3, 0, 4)
        if torch.is_grad_enabled() and q.device.type == "cpu":
            # Written out: the kernel's backward pass takes several times as long.
            scores = q @ k.transpose(-1, -2)
            if t > 1:
                later = torch.ones(t, s, dtype=torch.bool).triu(s - t + 1)
                scores = scores.masked_fill(later, float("-inf"))
            mixed = [scores.softmax(dim=-1) @ v]
        else:
            # Query by query, without a mask: on a CPU the kernel does one query several times
            # faster than two, above all in bfloat16.
            seen = [s - t + 1 + i for i in range(t)]
            mixed = [
                F.scaled_dot_product_attention(
                    q[:, :, i : i + 1], k[:, :, :number], v[:, :, :number], scale=1.0
                )
                for i, number in enumerate(seen)
            ]
        return torch.cat([m.permute(2, 0, 1, 3).reshape(-1, n, query.shape[2]) for m in mixed])

    def _grow(
        self, x: Tensor, modulations: list[Tensor], cache: list[Tensor | None], *, last: bool
    ) -> Tensor:
        """The output of one new token x [1, N, width], with the cache extended.

        modulations: of this token's block, per layer [1, N, 6, width]. cache: per layer the keys
        and values of the tokens before it. last: no other token will be added to this window.
        """
        for i, (layer, m) in enumerate(zip(self._layers, modulations, strict=True)):
            y = self._modulated(x, m, 0)
            earlier = cache[i]
            if earlier is not None:
                window = torch.cat([earlier, layer.key_value(y)])
                cache[i] = window
                read = layer.out(self._attended(layer.query(y), window, layer))
            else:
                cache[i] = None if last else layer.key_value(y)
                read = layer.alone(y)
            x = self._mlp(torch.addcmul(x, self._part(m, 2), read.float()), layer, m)
        return x

    def _window(self, x: Tensor, modulations: list[Tensor]) -> Tensor:
        """The last token's output [1, N, width] of a whole window x [h, N, width].

        modulations: of the window's blocks, per layer [h, N, 6, width].
        """
        h = len(x)
        for layer, m in zip(self._layers, modulations, strict=True):
            final = layer is self._layers[-1]
            y = self._modulated(x, m, 0)
            read = []
            if h == 1 or not final:
                read.append(layer.alone(y[:1]))
            if h > 1:
                query = layer.query(y[-1:] if final else y[1:])
                read.append(layer.out(self._attended(query, layer.key_value(y), layer)))
            if final:
                x, m = x[-1:], m[-1:]
            x = torch.addcmul(x, self._part(m, 2), torch.cat(read).float())
            x = self._mlp(x, layer, m)
        return x

    def _project(self, x: Tensor) -> Tensor:
        """[N, width] -> the predicted latent [N, D]."""
        weight, bias, eps = self._norm
        y = F.layer_norm(x, x.shape[-1:], weight, bias, eps)
        up, down = self._head
        return down(up(y, gelu=True))

    def _modulations(self, actions: Tensor) -> list[Tensor]:
        """[T, N, width] -> per layer [T, N, 6, width]: once for a whole rollout."""
        active = F.silu(actions)
        return [layer.modulation(active).unflatten(-1, (6, -1)) for layer in self._layers]

    def rollout(self, latents: Tensor, actions: Tensor) -> Tensor:
        """[N, h, D] observed, [N, h - 1 + K, E] embedded blocks -> [N, K, D]."""
        h = latents.shape[1]
        steps = actions.shape[1] - h + 1
        modulations = self._modulations(actions.transpose(0, 1).contiguous())
        positions = self._predictor.positions[0]
        read = self._predictor.read
        track = [latents[:, i] for i in range(h)]
        cache: list[Tensor | None] = [None] * len(self._layers)
        longest = min(self.history, h + steps - 1)
        grown = 0
        for total in range(h, h + steps):
            if total <= self.history:
                while grown < total:
                    token = read(track[grown]) + positions[grown]
                    now = [m[grown : grown + 1] for m in modulations]
                    x = self._grow(token[None], now, cache, last=grown + 1 == longest)
                    grown += 1
            else:
                start = total - self.history
                window = read(torch.stack(track[start:])) + positions[:, None]
                x = self._window(window, [m[start:total] for m in modulations])
            track.append(self._project(x[0]))
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
