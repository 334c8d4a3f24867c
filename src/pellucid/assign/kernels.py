"""The claims of `aligned` as one GPU kernel: a program an object, which looks at the anchors in its window alone.

Nothing of the size objects x anchors is ever held: the k best candidates stay in registers, and anchors learn their best holder by an
atomic maximum. Both are kept as whole numbers, t or u in the high half and the anchor or object in the low one, so that the result is
the same in every order of events; of equals the lowest is taken. Sizes are arguments, not constants: a new number of objects compiles
nothing, but for divisibility by 16, and a step is recorded only after one with the same shapes ran. Imported only where there is a GPU.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from ..numerics.constants import constant
from ..numerics.kernels import device_of
from ..types import Dense, Targets
from .aligned import FORMS
from .comparisons import similarity, window

BLOCK, WARPS = 1024, 8  # anchors looked at together, and by how many groups of 32 threads


@triton.jit
def _rank(keys, lane, known, KEEP: tl.constexpr):
    """The place of each of the first `known` keys, largest first, and what they hold: bits of t, anchor, and whether there is one."""
    keys = tl.where(lane < known, keys, -0x4000000000000000 - lane)  # all keys are different
    place = tl.sum((keys[None, :] > keys[:, None]).to(tl.int32), 1)
    filled = (keys >= 0) & (lane < known)
    anchor = tl.where(filled, 0x7FFFFFFF - (keys & 0x7FFFFFFF), 0)
    return place, (keys >> 32).to(tl.int32), anchor, filled


@triton.jit
def _claim(shapes, inputs, results, numbers, share, FORM: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    """One object: its best candidates into `anchor_of`, `u_of` and `t_of`, and `share` x u into `held` where it is the most so far."""
    logits, valid, labels = inputs
    anchor_of, u_of, t_of, held = results
    anchors, objects, known, points, step_image, step_anchor, step_class = numbers
    row = tl.program_id(0).to(tl.int64)
    image = row // objects
    logits += image * step_image + tl.load(labels + row) * step_class
    lane = tl.arange(0, KEEP).to(tl.int64)
    keys = tl.where(lane < known, -1 - lane, 0x7FFFFFFFFFFFFFFF)  # t and anchor; what is below 0 is empty, the last are not ours
    count = tl.where(tl.load(valid + row) != 0, anchors, 0)
    for start in range(0, count, BLOCK):
        anchor = start + tl.arange(0, BLOCK)
        inside = window(shapes, row, anchor, anchors, FORM)
        if tl.max(inside.to(tl.int32), 0) > 0:
            u = similarity(shapes, row, image * anchors + anchor, inside, points, FORM)
            inside = inside & (u == u)
            logit = tl.load(logits + anchor.to(tl.int64) * step_anchor, mask=inside, other=0.0).to(tl.float32)
            score = tl.sqrt_rn(tl.div_rn(1.0, 1.0 + tl.exp(-logit)))
            mine = ((u * share).to(tl.int32, bitcast=True).to(tl.int64) << 32) | (objects - 1 - row % objects)
            tl.atomic_max(held + image * anchors + anchor, mine, mask=inside, sem="relaxed")
            u = u * u * u
            t = score * (u * u)
            bits = tl.where(t == t, t, float("inf")).to(tl.int32, bitcast=True)
            block = tl.where(inside, (bits.to(tl.int64) << 32) | (0x7FFFFFFF - anchor).to(tl.int64), -0x4000000000000000)
            best, worst = tl.max(block, 0), tl.min(keys, 0)
            while best > worst:
                keys = tl.where(keys == worst, best, keys)
                block = tl.where(block == best, -0x4000000000000000, block)
                best, worst = tl.max(block, 0), tl.min(keys, 0)
    place, bits, anchor, filled = _rank(keys, lane, known, KEEP)
    u = similarity(shapes, row, image * anchors + anchor, filled, points, FORM)
    to = row * known + place
    tl.store(anchor_of + to, anchor, mask=lane < known)
    tl.store(u_of + to, tl.where(filled, u, -1.0), mask=lane < known)
    tl.store(t_of + to, tl.where(filled, bits.to(tl.float32, bitcast=True), -1.0), mask=lane < known)


def claim(
    form: tuple[str, tuple[float, ...]], dense: Dense, shapes: Mapping[str, Tensor], targets: Targets, known: int, share: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The `known` best candidates of every object: anchor, u, t, (B, N, known) each, best first; and who has `share` x u of an anchor.

    `form` is a name in `FORMS` and its numbers. u and t are -1 where there is no candidate; t is infinite where the logit is no number.
    Where u is no number there is no candidate and no holder.
    The last result (B, A) int64 is for `unpack`. Shapes are float32, logits of any floating type, in place wherever they lie.
    """
    name, numbers = form
    logits, truth = dense.outputs["cls"], targets.truth
    (batch, anchors, _), objects = logits.shape, targets.labels.shape[1]
    main = "boxes" if name == "keypoints" else name
    limits = torch.stack(dense.strides.aminmax()) if name == "keypoints" else dense.strides
    compared = [dense.points, dense.strides, limits, constant(numbers, logits.device), shapes[main], truth[main], shapes[name], truth[name]]
    anchor = torch.empty(batch, objects, known, dtype=torch.int64, device=logits.device)
    u, t = (torch.empty(anchor.shape, device=logits.device) for _ in range(2))
    held = torch.full((batch, anchors), -1, dtype=torch.int64, device=logits.device)
    inputs = logits, targets.valid.contiguous().view(torch.uint8), targets.labels.contiguous()
    sizes = (anchors, objects, known, truth[name].shape[2], *logits.stride())
    if anchor.numel():
        with device_of(logits):
            _claim[(batch * objects,)](
                tuple(value.contiguous() for value in compared), inputs, (anchor, u, t, held), sizes, share,
                FORM=FORMS[name], BLOCK=BLOCK, KEEP=triton.next_power_of_2(known), num_warps=WARPS, enable_fp_fusion=False,
            )  # fmt: skip
    return anchor, u, t, held


def pack(u: Tensor, objects: Tensor, count: int) -> Tensor:
    """u (...) in float32 and the number of its object, of `count`, as one that is larger for larger u, then for the lower number."""
    return torch.where(u >= 0, (u.view(torch.int32).long() << 32) | (count - 1 - objects), -1)


def unpack(packed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """u and the number of the object; -1 and 0 where there is none."""
    u = (packed >> 32).int().view(torch.float32)
    return torch.where(packed < 0, -1.0, u), torch.where(packed < 0, 0, count - 1 - (packed & 0x7FFFFFFF))


def probe() -> None:
    """Run once on a single anchor, so that what cannot be compiled is known before training begins."""
    boxes = torch.tensor([[[0.0, 0.0, 16.0, 16.0]]], device="cuda")
    points, none = torch.full((1, 2), 8.0, device="cuda"), torch.zeros(1, 1, dtype=torch.int64, device="cuda")
    dense = Dense({"cls": torch.zeros(1, 1, 1, device="cuda")}, points, points[:, 0])
    claim(("boxes", (16.0,)), dense, {"boxes": boxes}, Targets(none, none == 0, boxes), 1)
