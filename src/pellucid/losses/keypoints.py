"""Losses of keypoints on gathered pairs: similarity, visibility, and the likelihood of the residual under a learned density."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from ..geometry.boxes import box_area
from ..geometry.keypoints import point_similarity
from ..models.flow import FLOW_OUTPUTS, log_density
from ..numerics.constants import constant
from ..numerics.islands import damped, full, island
from ..types import Pairs

LIMIT = 100.0  # of a coordinate of the residual, in sigmas
LEAST_SIGMA = 0.05  # strides; with it the density is bounded, so its negative logarithm has a floor of its own
STEEPEST = 100.0  # slope of a coordinate's density whose gradient is a float16
RAW_LIMIT = -30.0  # sigmoid of less would make 1 / sigma overflow


def oks_loss(pairs: Pairs, sigmas: tuple[float, ...]) -> Tensor:
    """1 - OKS, (B, P), with the area of the true box; 0 where no point is labelled (arXiv 2204.06806)."""
    truth = pairs.truth["keypoints"]
    near, seen = point_similarity(pairs.shapes["keypoints"], truth, box_area(pairs.truth["boxes"]), constant(sigmas, truth.device))
    return (seen - near).sum(-1) / seen.sum(-1).clamp(min=1)


def visibility_loss(pairs: Pairs) -> Tensor:
    """Mean over the points of BCE(visibility logit, whether the point is labelled), (B, P)."""
    points = pairs.truth["keypoints"].shape[-2]
    logits = full(pairs.outputs["points"]).unflatten(-1, (points, 3))[..., 2]
    return binary_cross_entropy_with_logits(logits, (pairs.truth["keypoints"][..., 2] > 0).to(logits.dtype), reduction="none").mean(-1)


def rle_loss(pairs: Pairs, joints: tuple[float, ...], form: str = "double", least_sigma: float = 0.0) -> Tensor:
    """Mean over the labelled points of joint weight x negative log-likelihood of the residual in strides, (B, P); 0 without any.

    `joints` are the weights of the K points; `form` and `least_sigma` are those of `residual_nll`.
    """
    truth = pairs.truth["keypoints"]
    points = truth.shape[-2]
    seen = truth[..., 2] > 0
    raw = pairs.outputs["points"]
    found = raw.unflatten(-1, (points, raw.shape[-1] // points))[..., :2]
    there = torch.where(seen[..., None], truth[..., :2] - pairs.points[..., None, :], 0.0)  # from the anchor, px
    raw_sigma = pairs.outputs["sigma"].unflatten(-1, (points, 2))
    nll = residual_nll(found, there / pairs.strides[..., None, None], raw_sigma, seen, pairs.shared, form, least_sigma)
    return (nll * constant(joints, nll.device)).sum(-1) / seen.sum(-1).clamp(min=1)


def by_labelled_point(pairs: Pairs) -> Tensor:
    """Pairs count by their labelled points, (B, P)."""
    return (pairs.truth["keypoints"][..., 2] > 0).sum(-1) * pairs.valid.float()


def residual_nll(
    found: Tensor,
    truth: Tensor,
    raw_sigma: Tensor,
    seen: Tensor,
    flow: Mapping[str, Tensor],
    form: str = "double",
    least_sigma: float = 0.0,
    limit: float = LIMIT,
) -> Tensor:
    """Negative log-likelihood (..., K) of found - truth, 0 where not `seen` (..., K); found, truth, raw_sigma (..., K, 2), in strides.

    With e = (found - truth) / sigma, cut at `limit`, and sigma = least + (1 - least) sigmoid(raw): sum over x and y of
    log sigma + log 2 sigma + |e|, less 2 log phi(e) as "double" prints it (arXiv 2606.03748, Eq. 10-11, the density counted for x and
    for y); or each once, as "single" (arXiv 2107.11291, Eq. 8). The whole is an island in at least float32: a residual of ordinary
    training passes the range of float16. So does the gradient of a single point with a small sigma, 2 e / sigma: where it is returned in
    float16, the slopes by residual and by sigma are cut at `STEEPEST`.
    """
    density = partial(_nll, times=2 if form == "double" else 1, least_sigma=least_sigma, limit=limit)
    (nll,) = island(density, found, truth, raw_sigma, seen, *(flow[name] for name in FLOW_OUTPUTS))
    return nll


def _nll(
    found: Tensor, truth: Tensor, raw_sigma: Tensor, seen: Tensor, *flow: Tensor, times: int, least_sigma: float, limit: float
) -> tuple[Tensor]:
    residual = torch.where(seen[..., None], full(found) - full(truth), 0.0)
    raw = torch.where(seen[..., None], full(raw_sigma), 0.0).clamp(min=RAW_LIMIT)
    if raw_sigma.dtype == torch.float16:
        residual, raw = _cut_slopes(residual, raw, times, least_sigma, limit)
    sigma = _sigma(raw, least_sigma)
    log_sigma = sigma.log() if least_sigma else logsigmoid(raw)
    e = (residual / sigma).clamp(-limit, limit)
    laplace = (times * log_sigma + e.abs()).sum(-1) + 2 * math.log(2)
    nll = laplace - times * log_density(e, dict(zip(FLOW_OUTPUTS, flow, strict=True)))
    return (torch.where(seen, nll, 0.0),)


def _sigma(raw: Tensor, least: float) -> Tensor:
    return least + (1 - least) * raw.sigmoid()


def _cut_slopes(residual: Tensor, raw: Tensor, times: int, least_sigma: float, limit: float) -> tuple[Tensor, Tensor]:
    """The same residual and raw sigma, with gradients of at most `STEEPEST` times the loss's where phi is the normal density."""
    with torch.no_grad():
        share, sigma = raw.sigmoid(), _sigma(raw, least_sigma)
        e = (residual / sigma).abs()
        e = torch.where(e < limit, e, 0.0)  # beyond it there is no slope
        by_residual = (1 + times * e) / sigma
        by_raw = (times + e + times * e.square()) * (1 - least_sigma) * share * (1 - share) / sigma
        of_residual, of_raw = ((STEEPEST / slope.clamp(min=STEEPEST)) for slope in (by_residual, by_raw))
    return damped(residual, of_residual), damped(raw, of_raw)
