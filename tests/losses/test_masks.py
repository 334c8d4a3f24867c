"""Mask losses against plain formulas written cell by cell; gradients; memory."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from pellucid.geometry.masks import pack_bits
from pellucid.losses import mask_blocks
from pellucid.losses.masks import class_map, count_bits, mask_bce, mask_iou, semantic_loss
from pellucid.types import Pairs, Regions

B, N, P, K, H, W = 2, 3, 5, 4, 6, 8


def scene(seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Pairs, torch.Tensor]:
    """Random pairs of random objects, one of them with an empty box; and the objects' masks."""
    g = torch.Generator().manual_seed(seed)
    masks = torch.rand(B, N, H, W, generator=g) < 0.5
    low = torch.rand(B, N, 2, generator=g) * 12
    boxes = torch.cat((low, low + 3 + torch.rand(B, N, 2, generator=g) * 16), -1)
    boxes[0, 0, 2:] = boxes[0, 0, :2]
    owner = torch.randint(N, (B, P), generator=g)
    owner[0, 0] = 0
    truth = {"boxes": boxes.gather(1, owner[..., None].expand(-1, -1, 4))}
    outputs = {"coefficients": torch.randn(B, P, K, generator=g, dtype=dtype).requires_grad_()}
    shared = {"proto": torch.randn(B, K, H, W, generator=g, dtype=dtype).requires_grad_()}
    nothing = torch.zeros(B, P)
    bits = {"boxes": boxes, "masks": pack_bits(masks)}
    return Pairs(outputs, {}, truth, shared, owner, nothing, nothing, nothing, nothing > 0, (H * 4, W * 4), bits), masks


def plain(pairs: Pairs, masks: torch.Tensor, offset: float) -> torch.Tensor:
    """The same, in loops."""
    rows = []
    for b in range(B):
        for p in range(P):
            x1, y1, x2, y2 = (pairs.truth["boxes"][b, p] / 4).tolist()
            logits = torch.einsum("k,khw->hw", pairs.outputs["coefficients"][b, p], pairs.shared["proto"][b])
            every = bce(logits, masks[b, pairs.object[b, p]].to(logits.dtype), reduction="none")
            inside = [(y, x) for y in range(H) for x in range(W) if x1 <= x + offset < x2 and y1 <= y + offset < y2]
            total = torch.stack([every[y, x] for y, x in inside]).sum() if inside else logits.sum() * 0
            rows.append(total / ((x2 - x1) * (y2 - y1) if x2 > x1 else 1))
    return torch.stack(rows).view(B, P)


@pytest.fixture(params=[1 << 20, 100, 1], ids=["one block", "blocks", "a pair at a time"])
def block(request, monkeypatch):
    monkeypatch.setitem(mask_blocks.BLOCK, "cpu", request.param)


@pytest.mark.parametrize(("cells", "offset"), [("index", 0.0), ("centre", 0.5)])
def test_the_mask_loss_and_its_gradients_are_the_plain_ones(block, cells, offset):
    pairs, masks = scene()
    ours, theirs = mask_bce(pairs, cells), plain(pairs, masks, offset)
    torch.testing.assert_close(ours, theirs)
    assert (theirs > 0.3).sum() >= 6
    assert ours[0, 0] == 0  # a box of no cell
    weight = torch.rand(B, P, generator=torch.Generator().manual_seed(1))
    variables = (pairs.outputs["coefficients"], pairs.shared["proto"])
    gradients = [torch.autograd.grad((loss * weight).sum(), variables) for loss in (ours, theirs)]
    for our, their in zip(*gradients, strict=True):
        torch.testing.assert_close(our, their)
        assert their.abs().max() > 0.1


def test_the_gradient_in_double_precision(block):
    pairs, _ = scene(2, torch.float64)

    def loss(coefficients, proto):
        return mask_bce(Pairs(**{**vars(pairs), "outputs": {"coefficients": coefficients}, "shared": {"proto": proto}}))

    assert torch.autograd.gradcheck(loss, (pairs.outputs["coefficients"], pairs.shared["proto"]))


def test_a_half_precision_prototype_is_taught_in_full(block):
    pairs, _ = scene(3)
    half = pairs.shared["proto"].detach().bfloat16().requires_grad_()
    mask_bce(Pairs(**{**vars(pairs), "shared": {"proto": half}})).sum().backward()
    assert half.grad.dtype == torch.bfloat16
    assert half.grad.abs().max() > 0.1
    assert pairs.outputs["coefficients"].grad.dtype == torch.float32


class _Sizes(torch.utils._python_dispatch.TorchDispatchMode):
    """The most elements that any single tensor made within had."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.numel())
        return result


@pytest.mark.parametrize("pairs_", [40, 160])
def test_memory_does_not_grow_with_pairs_times_cells(monkeypatch, pairs_):
    monkeypatch.setitem(mask_blocks.BLOCK, "cpu", 1 << 14)
    side, saved = 64, []
    proto = torch.randn(1, K, side, side).requires_grad_()
    coefficients = torch.randn(1, pairs_, K).requires_grad_()
    boxes = torch.tensor([[[0.0, 0, 256, 256]]])
    bits = {"boxes": boxes, "masks": torch.full((1, 1, side, side // 8), 170, dtype=torch.uint8)}
    nothing = torch.zeros(1, pairs_)
    truth = {"boxes": boxes.expand(-1, pairs_, -1)}
    pairs = Pairs(
        {"coefficients": coefficients}, {}, truth, {"proto": proto}, nothing.long(), *[nothing] * 4, size=(256, 256), objects=bits
    )
    with _Sizes() as sizes, torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        loss = mask_bce(pairs).mean()
    loss.backward()
    assert loss.item() > 0.5
    assert sizes.largest <= 1 << 17  # a block's bits; all pairs at once would be 40 or 160 x 4096 cells
    assert sum(saved) < side * side * K + 100 * pairs_
    looked = coefficients.detach()[:, None]
    with _Sizes() as sizes:
        found = mask_iou(looked, proto.detach(), truth["boxes"][:, None], bits["masks"])
    assert 0.2 < found.mean() < 0.5
    assert sizes.largest <= 1 << 17


def test_overlap_of_masks(block):
    pairs, masks = scene(4)
    looks = 3
    g = torch.Generator().manual_seed(5)
    coefficients, low = torch.randn(B, N, looks, K, generator=g), torch.rand(B, N, looks, 2, generator=g) * 10
    boxes = torch.cat((low, low + torch.rand(B, N, looks, 2, generator=g) * 22), -1)
    ours = mask_iou(coefficients, pairs.shared["proto"], boxes, pairs.objects["masks"])
    assert ours.shape == (B, N, looks)
    for b in range(B):
        for n in range(N):
            for r in range(looks):
                x1, y1, x2, y2 = (boxes[b, n, r] / 4).tolist()
                logits = torch.einsum("k,khw->hw", coefficients[b, n, r], pairs.shared["proto"][b])
                y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
                hard = (logits > 0) & (x >= x1) & (x < x2) & (y >= y1) & (y < y2)
                both, either = (hard & masks[b, n]).sum(), (hard | masks[b, n]).sum()
                assert ours[b, n, r].item() == pytest.approx((both / either).item(), abs=1e-6)
    assert (ours > 0.04).sum() > 6


def test_nothing_overlaps_nothing():
    bits = torch.zeros(1, 1, H, 1, dtype=torch.uint8)
    assert mask_iou(-torch.ones(1, 1, 1, 1), torch.ones(1, 1, H, W), torch.tensor([[[[0.0, 0, 20, 20]]]]), bits) == 0


def test_bits_are_counted():
    masks = torch.rand(3, 4, 10, 24, generator=torch.Generator().manual_seed(6)) < torch.linspace(0, 1, 4)[:, None, None]
    assert torch.equal(count_bits(pack_bits(masks)), masks.sum((-2, -1)).float())
    assert masks[:, -1].all()


def test_the_smallest_object_owns_a_cell(block):
    masks = torch.zeros(1, 4, 8, 8, dtype=torch.bool)
    masks[0, 0] = True
    masks[0, 1, 2:6, 2:6] = True
    masks[0, 2, 4:5, 4:6] = True
    masks[0, 3, :, :2] = True  # not valid
    labels, valid = torch.tensor([[7, 3, 5, 1]]), torch.tensor([[True, True, True, False]])
    shown = class_map(pack_bits(masks), labels, valid)
    assert shown.tolist() == [[[7, 7, 7, 7], [7, 3, 3, 7], [7, 3, 5, 7], [7, 7, 7, 7]]]
    assert (class_map(pack_bits(masks), labels, torch.zeros_like(valid)) == -1).all()


def test_the_semantic_loss_by_hand():
    """Two classes of which one is absent, one image without objects."""
    masks = torch.zeros(2, 1, 4, 8, dtype=torch.bool)
    masks[:, 0, :, :4] = True
    logits = torch.zeros(2, 2, 2, 4)
    loss = semantic_loss(logits, pack_bits(masks), torch.ones(2, 1, dtype=torch.int64), torch.tensor([[True], [False]]))
    dice = [1 - (2 * 0.5 * 4 + 1) / (4 + 4 + 1), 1 - 1 / (4 + 1)]  # present, absent
    assert loss.tolist() == pytest.approx([0.5 * math.log(2) + 0.5 * sum(dice) / 2, 0.5 * math.log(2) + 0.5 * dice[1]])


def test_a_perfect_semantic_map_costs_little():
    masks = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    masks[..., 2:7, 1:6] = True
    target = class_map(pack_bits(masks), torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)) == 0
    logits = torch.where(target[:, None], 20.0, -20.0)
    assert target.any()
    assert semantic_loss(logits, pack_bits(masks), torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)).item() < 1e-4


def test_the_semantic_map_is_free_in_ignored_regions():
    """Of its class, and where no object of it is; two other levels of anchors come behind the cells of the map."""
    masks = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    masks[..., :4, :4] = True
    told = pack_bits(masks), torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    cells = torch.zeros(1, 4, 16 + 4 + 1, dtype=torch.bool)
    cells[0, 0, :8] = cells[0, 1, 12:] = True  # the upper half of class 1, the last row of class 0 and all of the other levels
    logits = torch.randn(1, 3, 4, 4, requires_grad=True)
    labels = torch.tensor([[1, 0, 0, 0]])
    (gradient,) = torch.autograd.grad(semantic_loss(logits, *told, Regions(labels, cells)).sum(), logits)
    free = torch.zeros(1, 3, 4, 4, dtype=torch.bool)
    free[0, 1, :2] = free[0, 0, 3:] = True
    assert torch.equal(gradient == 0, free)
    assert torch.equal(semantic_loss(logits, *told, Regions(labels, cells & False)), semantic_loss(logits, *told))
    taught = Regions(labels[:, [1, 0, 2, 3]], cells)  # now the region of class 0 lies on the object, which is taught all the same
    (gradient,) = torch.autograd.grad(semantic_loss(logits, *told, taught).sum(), logits)
    assert (gradient[0, 0, :2, :2] != 0).all()
    assert (gradient[0, 0, :2, 2:] == 0).all()
