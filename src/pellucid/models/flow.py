"""A normalising flow on the plane: the density of keypoint errors, learned beside the pose head (arXiv 1605.08803; arXiv 2107.11291).

Six affine couplings, each with a scale and a shift net 2-64-64-2. The module only hands its parameters on: the density is evaluated where
the loss is, so that losses stay functions of what a step has at hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from ..numerics.islands import autocast_off, full, island

COUPLINGS, HIDDEN = 6, 64
LAYERS = (0, 2, 4)  # the linear layers of a net; SiLU lies between
FLOW_OUTPUTS = tuple(f"flow{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias"))


class RealNVP(nn.Module):
    """53,784 parameters; maps -> {"flow0.weight": (6, 2, 64, 2), "flow0.bias": (6, 2, 64), ...}: couplings, then scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.ModuleList(_net() for _ in range(COUPLINGS))
        self.shift = nn.ModuleList(_net() for _ in range(COUPLINGS))

    def forward(self, maps: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        parameters = dict(self.named_parameters())
        return {f"flow{layer}.{kind}": self._stack(parameters, f"{layer}.{kind}") for layer in LAYERS for kind in ("weight", "bias")}

    def keep(self, training_only: frozenset[str]) -> bool:
        """Whether anything is left once the outputs of training are dropped."""
        return not training_only.issuperset(FLOW_OUTPUTS)

    @staticmethod
    def _stack(parameters: Mapping[str, Tensor], end: str) -> Tensor:
        nets = [parameters[f"{side}.{i}.{end}"] for i in range(COUPLINGS) for side in ("scale", "shift")]
        return torch.stack(nets).unflatten(0, (COUPLINGS, 2))


def _net() -> nn.Sequential:
    """One conditioner; its last layer starts small, so that the flow starts near the normal density."""
    net = nn.Sequential(nn.Linear(2, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 2))
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.01)
        last.bias.zero_()
    return net


def log_density(points: Tensor, flow: Mapping[str, Tensor]) -> Tensor:
    """log phi of `points` (..., 2) -> (...,); `flow` is what `RealNVP` gives. At least float32, whatever the autocast state (Eq. 11).

    The couplings are undone last to first; what is left is standard normal.
    """
    with autocast_off(points.device):
        z, log_det = undo(points, flow)
        return -0.5 * z.square().sum(-1) - math.log(2 * math.pi) - log_det


def undo(points: Tensor, flow: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """z (..., 2) that the flow takes to `points`, and the log-determinant (...,) of the way from z to them.

    Hidden activations, 1,024 numbers a point and coupling, are computed again in the backward pass.
    """
    flat, flow = _full(points, flow)
    total = torch.zeros_like(flat[:, 0])
    for i in reversed(range(COUPLINGS)):
        flat, scale = island(partial(_undo_one, fixed=_fixed(i)), flat, *(flow[name][i] for name in FLOW_OUTPUTS))
        total = total + scale
    return flat.reshape(points.shape), total.reshape(points.shape[:-1])


def apply(z: Tensor, flow: Mapping[str, Tensor]) -> Tensor:
    """Points (..., 2) that standard normal z (..., 2) become; the inverse of `undo`."""
    flat, flow = _full(z, flow)
    for i in range(COUPLINGS):
        fixed = _fixed(i)
        scale, shift = _conditioners(flat[:, fixed], fixed, [flow[name][i] for name in FLOW_OUTPUTS])
        flat = _pair(flat[:, fixed], flat[:, 1 - fixed] * scale.exp() + shift, fixed)
    return flat.reshape(z.shape)


def _undo_one(z: Tensor, *weights: Tensor, fixed: int) -> tuple[Tensor, Tensor]:
    """One coupling undone: (z (M, 2), its log-scale (M,))."""
    scale, shift = _conditioners(z[:, fixed], fixed, weights)
    return _pair(z[:, fixed], (z[:, 1 - fixed] - shift) * torch.exp(-scale), fixed), scale


def _conditioners(kept: Tensor, fixed: int, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Log-scale and shift (M,) of the moved coordinate, from the kept one (M,); both nets in one product, on what a mask would leave."""
    w0, b0, w1, b1, w2, b2 = weights  # (2, out, in), (2, out): scale net, shift net
    moved = slice(1 - fixed, 2 - fixed)
    hidden = silu(kept[:, None] * w0[:, None, :, fixed] + b0[:, None])  # (2, M, 64)
    hidden = silu(torch.baddbmm(b1[:, None], hidden, w1.mT))
    scale, shift = torch.baddbmm(b2[:, None, moved], hidden, w2[:, moved].mT).squeeze(-1).unbind(0)
    return scale.tanh(), shift


def _fixed(coupling: int) -> int:
    """Which coordinate a coupling leaves as it is: y, x, y, ..."""
    return 1 - coupling % 2


def _pair(kept: Tensor, moved: Tensor, fixed: int) -> Tensor:
    return torch.stack((kept, moved) if fixed == 0 else (moved, kept), -1)


def _full(points: Tensor, flow: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Points as (M, 2) and the flow, both in at least float32."""
    points = full(points)
    return points.reshape(-1, 2), {name: flow[name].to(points.dtype) for name in FLOW_OUTPUTS}
