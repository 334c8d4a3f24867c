"""Position-sensitive attention at stride 32. Its logits leave half precision's range, so they and their softmax are float32."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..numerics.islands import full, island
from .blocks import ConvUnit


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """softmax(q^T k / sqrt(d)) in at least float32, autocast off in both passes; q, k (B, H, d, L) -> (B, H, L, L) in the dtype of q."""
    (weights,) = island(_weights, q, k)
    return weights


def _weights(q: Tensor, k: Tensor) -> tuple[Tensor]:
    logits = full(q).transpose(-2, -1) @ full(k) * q.shape[-2] ** -0.5  # the sum may pass 65,504 before it is scaled
    return (logits.softmax(-1).to(q.dtype),)


class Attention(nn.Module):
    """Multi-head self-attention over the positions of a map, with a depthwise 3x3 of the values as position term."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // 64)
        self.value_dim = channels // self.heads
        self.key_dim = self.value_dim // 2
        self.qkv = ConvUnit(channels, channels + 2 * self.heads * self.key_dim, act=False)
        self.position = ConvUnit(channels, channels, 3, groups=channels, act=False)
        self.project = ConvUnit(channels, channels, act=False)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        qkv = self.qkv(x).reshape(b, self.heads, 2 * self.key_dim + self.value_dim, h * w)
        q, k, v = qkv.split((self.key_dim, self.key_dim, self.value_dim), 2)  # (B, H, d, L)
        mixed = (v @ attention_weights(q, k).transpose(-2, -1)).reshape(b, c, h, w)
        return self.project(mixed + self.position(v.reshape(b, c, h, w)))


class PSABlock(nn.Module):
    """Attention, then a two-layer 1x1 feed-forward, each added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = Attention(channels)
        self.feed = nn.Sequential(ConvUnit(channels, 2 * channels), ConvUnit(2 * channels, channels, act=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.feed(x)


class C2PSA(nn.Module):
    """Split in two halves, attention blocks on one, joined by a 1x1."""

    def __init__(self, channels: int, repeats: int) -> None:
        super().__init__()
        hidden = channels // 2
        self.split = ConvUnit(channels, 2 * hidden)
        self.units = nn.Sequential(*(PSABlock(hidden) for _ in range(repeats)))
        self.join = ConvUnit(2 * hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        kept, worked = self.split(x).chunk(2, 1)
        return self.join(torch.cat((kept, self.units(worked)), 1))
