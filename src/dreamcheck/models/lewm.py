"""The LeWM network: a ViT encoder, an action embedder and a causal predictor in latent space.

One module serves every member of the family (LeWM, VIS-WM): they differ in the regulariser they
were trained with, and in sizes, which are data.

Source: spec/viscore.md section 14.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn


class LeWMConfig(BaseModel):
    """Sizes of a LeWM network; the defaults are the standard one, 18,034,478 parameters.

    image_size, patch_size: side of the square frame and of one patch, pixels.
    encoder_*: the vision transformer; its class token's output is projected to the latent.
    head_hidden: hidden width of the projector and of the predictor's projection.
    latent_width: numbers in one latent.
    action_width: numbers in one model-ready action block (frameskip x raw width when dense).
    action_smoothed, action_hidden: inner widths of the action embedder.
    predictor_*: the causal transformer; ``predictor_width`` is also the action embedding's width.
    history: most latents the predictor reads.
    dropout: of the predictor, in training only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_size: int = Field(default=224, gt=0, le=2048)
    patch_size: int = Field(default=14, gt=0, le=2048)
    encoder_width: int = Field(default=192, gt=0, le=8192)
    encoder_depth: int = Field(default=12, gt=0, le=256)
    encoder_heads: int = Field(default=3, gt=0, le=256)
    encoder_mlp: int = Field(default=768, gt=0, le=65536)
    encoder_norm_eps: float = Field(default=1e-12, gt=0)
    head_hidden: int = Field(default=2048, gt=0, le=65536)
    latent_width: int = Field(default=192, gt=0, le=65536)
    action_width: int = Field(default=10, gt=0, le=65536)
    action_smoothed: int = Field(default=10, gt=0, le=65536)
    action_hidden: int = Field(default=768, gt=0, le=65536)
    predictor_width: int = Field(default=192, gt=0, le=8192)
    predictor_depth: int = Field(default=6, gt=0, le=256)
    predictor_heads: int = Field(default=16, gt=0, le=256)
    predictor_head_width: int = Field(default=64, gt=0, le=8192)
    predictor_mlp: int = Field(default=2048, gt=0, le=65536)
    history: int = Field(default=3, gt=0, le=1024)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _sizes_fit(self) -> LeWMConfig:
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size = {self.image_size} is not a multiple of patch_size = "
                f"{self.patch_size}; the frame is cut into whole patches."
            )
        if self.encoder_width % self.encoder_heads:
            raise ValueError(
                f"encoder_width = {self.encoder_width} is not a multiple of encoder_heads = "
                f"{self.encoder_heads}; every head gets an equal share."
            )
        return self

    @property
    def num_patches(self) -> int:
        """Patches of one frame, without the class token."""
        return (self.image_size // self.patch_size) ** 2


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Scaled dot-product attention, [B, heads, tokens, width] each.

    While gradients are recorded on the CPU it is written out: the fused kernel's backward pass
    takes several times as long there for the few tokens that we have.
    """
    if q.device.type != "cpu" or not torch.is_grad_enabled():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    weights = scores.softmax(dim=-1).to(v.dtype)
    return (F.dropout(weights, dropout) if dropout else weights) @ v


class ViTLayer(nn.Module):
    """One pre-norm transformer layer: x += Attn(LN(x)); x += MLP(LN(x))."""

    def __init__(self, width: int, heads: int, mlp: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_before = nn.LayerNorm(width, eps=eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_after = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, mlp)
        self.down = nn.Linear(mlp, width)

    def forward(self, x: Tensor, *, queries: int | None = None) -> Tensor:
        """[N, tokens, width] -> the first ``queries`` tokens after the layer (default: all)."""
        n, tokens, width = x.shape
        q, k, v = (
            self.qkv(self.norm_before(x))
            .view(n, tokens, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        if queries is not None:
            q, x = q[:, :, :queries], x[:, :queries]
        attended = attend(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(n, x.shape[1], width))
        return x + self.down(F.gelu(self.up(self.norm_after(x))))


class ViTEncoder(nn.Module):
    """Vision transformer from scratch: no dropout, no pooler, no mask token; the CLS output."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.grid = config.image_size // config.patch_size
        width = config.encoder_width
        # Stored as a convolution, applied as the equal matrix product over cut-out patches.
        self.patch = nn.Conv2d(3, width, config.patch_size, stride=config.patch_size)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, config.num_patches + 1, width))
        self.layers = nn.ModuleList(
            ViTLayer(width, config.encoder_heads, config.encoder_mlp, config.encoder_norm_eps)
            for _ in range(config.encoder_depth)
        )
        self.norm = nn.LayerNorm(width, eps=config.encoder_norm_eps)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def _positions_for(self, grid: int) -> Tensor:
        """Positional embeddings, interpolated when the frame has another number of patches."""
        if grid == self.grid:
            return self.positions
        patches = self.positions[:, 1:].transpose(1, 2).unflatten(2, (self.grid, self.grid))
        patches = F.interpolate(patches, size=(grid, grid), mode="bicubic", align_corners=False)
        return torch.cat([self.positions[:, :1], patches.flatten(2).transpose(1, 2)], dim=1)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised frames [N, 3, s, s] -> the class token's output [N, width]."""
        n, _, side, _ = pixels.shape
        p, grid = self.patch_size, side // self.patch_size
        patches = pixels.view(n, 3, grid, p, grid, p).permute(0, 2, 4, 1, 3, 5)
        patches = patches.reshape(n, grid * grid, 3 * p * p)
        tokens = F.linear(patches, self.patch.weight.flatten(1), self.patch.bias)
        x = torch.cat([self.cls.expand(n, -1, -1).to(tokens.dtype), tokens], dim=1)
        x = x + self._positions_for(grid)
        for layer in self.layers[:-1]:
            x = layer(x)
        # Only the class token is read, so the last layer computes nothing else.
        x = self.layers[-1](x, queries=1)
        return self.norm(x[:, 0])


class Head(nn.Module):
    """Linear, BatchNorm, GELU, Linear, over batch and time flattened together."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.down = nn.Linear(hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., out]."""
        hidden = self.norm(self.up(x).flatten(0, -2))
        return self.down(F.gelu(hidden)).unflatten(0, x.shape[:-1])


class ActionEmbedder(nn.Module):
    """1x1 convolution over time, Linear, SiLU, Linear: each block on its own."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        self.smooth = nn.Conv1d(config.action_width, config.action_smoothed, 1)
        self.up = nn.Linear(config.action_smoothed, config.action_hidden)
        self.down = nn.Linear(config.action_hidden, config.predictor_width)

    def forward(self, blocks: Tensor) -> Tensor:
        """[B, T, A] -> [B, T, predictor_width]."""
        x = F.linear(blocks, self.smooth.weight.squeeze(-1), self.smooth.bias)
        return self.down(F.silu(self.up(x)))


class PredictorLayer(nn.Module):
    """Causal attention and MLP, each shifted, scaled and gated by the action embedding."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        width, inner = config.predictor_width, config.predictor_heads * config.predictor_head_width
        self.heads = config.predictor_heads
        self.dropout = config.dropout
        self.modulation = nn.Linear(width, 6 * width)
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, config.predictor_mlp)
        self.down = nn.Linear(config.predictor_mlp, width)
        # At the start every layer is the identity: gates open as training needs them.
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def modulations(self, actions: Tensor) -> Tensor:
        """[B, T, width] -> shift, scale, gate for attention and for the MLP: [B, T, 6, width]."""
        return self.modulation(F.silu(actions)).unflatten(-1, (6, -1))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def forward(self, x: Tensor, modulation: Tensor, *, last_only: bool = False) -> Tensor:
        """[B, h, width], [B, h, 6, width] -> [B, h, width], or [B, 1, width] for the last alone."""
        b, h, width = x.shape
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation.unbind(2)
        y = F.layer_norm(x, (width,), eps=1e-6) * (1 + scale) + shift
        q, k, v = (
            self.qkv(self.attention_norm(y)).view(b, h, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        if last_only:
            q, x = q[:, :, -1:], x[:, -1:]
            gate, mlp_shift = gate[:, -1:], mlp_shift[:, -1:]
            mlp_scale, mlp_gate = mlp_scale[:, -1:], mlp_gate[:, -1:]
        attended = attend(
            q,
            k,
            v,
            causal=not last_only and h > 1,
            dropout=self.dropout if self.training else 0.0,
        )
        attended = attended.transpose(1, 2).reshape(b, x.shape[1], -1)
        x = x + gate * self._drop(self.out(attended))
        y = F.layer_norm(x, (width,), eps=1e-6) * (1 + mlp_scale) + mlp_shift
        y = self._drop(F.gelu(self.up(self.mlp_norm(y))))
        return x + mlp_gate * self._drop(self.down(y))


class Predictor(nn.Module):
    """Causal transformer over latents; position i answers "what follows latent i and its block"."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        width = config.predictor_width
        same = config.latent_width == width
        self.read: nn.Module = nn.Identity() if same else nn.Linear(config.latent_width, width)
        self.positions = nn.Parameter(torch.randn(1, config.history, width))
        self.layers = nn.ModuleList(PredictorLayer(config) for _ in range(config.predictor_depth))
        self.norm = nn.LayerNorm(width)

    def modulations(self, actions: Tensor) -> list[Tensor]:
        """Every layer's modulation of every block: computed once for a whole rollout."""
        return [cast(PredictorLayer, layer).modulations(actions) for layer in self.layers]

    def forward(
        self,
        latents: Tensor,
        actions: Tensor | None = None,
        *,
        modulations: list[Tensor] | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """[B, h, latent], [B, h, width] -> [B, h, width]; with last_only, [B, 1, width].

        modulations: those of these h blocks, when the caller already has them.
        """
        if modulations is None:
            if actions is None:
                raise TypeError("give the embedded actions or their modulations.")
            modulations = self.modulations(actions)
        x = self.read(latents) + self.positions[:, : latents.shape[1]]
        final = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, modulations[i], last_only=last_only and i == final)
        return self.norm(x)


class LeWMNet(nn.Module):
    """Encoder, projector, action embedder, predictor and its projection."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ViTEncoder(config)
        self.projector = Head(config.encoder_width, config.head_hidden, config.latent_width)
        self.action_embedder = ActionEmbedder(config)
        self.predictor = Predictor(config)
        self.prediction_head = Head(config.predictor_width, config.head_hidden, config.latent_width)

    def encode(self, pixels: Tensor) -> Tensor:
        """Normalised frames [..., 3, s, s] -> latents [..., latent_width]."""
        lead = pixels.shape[:-3]
        return self.projector(self.encoder(pixels.flatten(0, -4))).unflatten(0, lead)

    def embed_actions(self, blocks: Tensor) -> Tensor:
        """[B, T, A] -> [B, T, predictor_width]."""
        return self.action_embedder(blocks)

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        """Teacher-forced predictions of all positions, as in training: [B, h, latent]."""
        return self.prediction_head(self.predictor(latents, actions))

    def predict_last(
        self,
        latents: Tensor,
        actions: Tensor | None = None,
        *,
        modulations: list[Tensor] | None = None,
    ) -> Tensor:
        """The latent after the last one given: [B, latent]."""
        x = self.predictor(latents, actions, modulations=modulations, last_only=True)
        return self.prediction_head(x[:, 0])


def count_parameters(module: nn.Module) -> int:
    """Numbers that training can change."""
    return sum(math.prod(p.shape) for p in module.parameters())
