"""Masks of predictions against plain interpolation, their codes against pycocotools, and bits."""

import tracemalloc

import numpy as np
import pycocotools.mask as coco_mask
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn.functional import interpolate

from pellucid.geometry import Letterbox
from pellucid.geometry.affine import about, rotation, scaling, translation
from pellucid.geometry.masks import Masks, pack_bits, unpack_bits
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rings import ring_areas
from pellucid.geometry.rle import Rle

STACKS = st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(1, 9)).flatmap(lambda shape: hnp.arrays(np.bool_, shape))


def make(count: int, seed: int = 0, size: int = 96) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Coefficients, smooth prototypes of a quarter of `size`, boxes."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = interpolate(torch.randn(1, 8, 6, 6, generator=generator), size=(size // 4, size // 4), mode="bilinear")[0]
    centre, side = torch.rand(2, count, 2, generator=generator) * size
    boxes = torch.cat((centre - side / 3, centre + side / 3), 1).clamp(0, size)
    return torch.randn(count, 8, generator=generator), prototypes, boxes


def plain(coefficients, prototypes, boxes, size: int) -> torch.Tensor:
    """Upsample all logits by half-pixel bilinear interpolation, cut at 0, crop to the pixels whose centre is in the box."""
    logits = torch.einsum("nk,khw->nhw", coefficients, prototypes)
    full = interpolate(logits[None], size=(size, size), mode="bilinear", align_corners=False)[0] > 0
    centre = torch.arange(size) + 0.5
    columns = (centre >= boxes[:, None, 0, None]) & (centre < boxes[:, None, 2, None])
    rows = (centre >= boxes[:, 1, None]) & (centre < boxes[:, 3, None])
    return full & columns & rows[:, :, None]


def test_full_masks_are_upsampled_logits_cut_to_the_box():
    parts = make(40)
    masks = Masks.of_prototypes(*parts)
    theirs = plain(*parts, 96)
    assert theirs.sum() > 2000
    assert torch.equal(masks.dense(96, 96), theirs)


def test_the_same_mask_alone_and_among_many():
    """However many objects there are, each pixel is computed alike."""
    coefficients, prototypes, boxes = make(1, 3)
    boxes = torch.tensor([[3.3, 5.1, 90.7, 88.2]])
    alone = Masks.of_prototypes(coefficients, prototypes, boxes).dense(96, 96)
    assert 100 < alone.sum() < 96 * 96 - 100
    for count in (2, 40, 60, 150):
        many = Masks.of_prototypes(coefficients.expand(count, -1), prototypes, boxes.expand(count, -1))
        assert (many.dense(96, 96) == alone).all()
        assert (many[count - 1 :].dense(96, 96) == alone).all()


def test_codes_need_the_memory_of_one_crop():
    coefficients, prototypes, _ = make(1, 4)
    masks = Masks.of_prototypes(coefficients.expand(20, -1), prototypes, torch.tensor([[0.0, 0, 96, 96]]).expand(20, -1))
    box = Letterbox.fit(2000, 2000, 96)
    large = masks.warp(torch.linalg.inv(box.matrix()))
    tracemalloc.start()
    codes = large.rle(2000, 2000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert codes.areas()[0] == large[:1].dense(2000, 2000).sum() > 10_000
    assert (codes.areas() == codes.areas()[0]).all()
    assert peak < 2000 * 2000 * 16  # bytes; all masks at once, one a pixel, would be 20


def test_restored_masks_are_sampled_in_original_pixels():
    """By the exact inverse of the letterbox: the same field, looked at from the original's pixel centres."""
    coefficients, prototypes, boxes = make(12, 5)
    box = Letterbox.fit(131, 222, 96)
    back = torch.linalg.inv(box.matrix())
    restored = Masks.of_prototypes(coefficients, prototypes, boxes).warp(back).clip(131, 222)
    found = restored.dense(131, 222)
    logits = torch.einsum("nk,khw->nhw", coefficients, prototypes)
    x = ((torch.arange(222) + 0.5) * box.new_width / 222 + box.left) / 96 * 2 - 1
    y = ((torch.arange(131) + 0.5) * box.new_height / 131 + box.top) / 96 * 2 - 1
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).expand(12, 131, 222, 2)
    field = torch.nn.functional.grid_sample(logits[:, None], grid, padding_mode="border", align_corners=False)[:, 0]
    inside = found.flatten(1).any(1)
    assert inside.sum() > 6
    clear = field.abs() > 1e-4
    x1, y1, x2, y2 = (side[:, None] for side in restored.boxes.unbind(1))
    columns, rows = torch.arange(222) + 0.5, torch.arange(131) + 0.5
    cropped = ((columns >= x1) & (columns < x2))[:, None] & ((rows >= y1) & (rows < y2))[:, :, None]
    assert torch.equal(found[clear], ((field > 0) & cropped)[clear])


def test_masks_turn_with_the_plane():
    masks = Masks.of_prototypes(*make(10, 6))
    turned = masks.warp(about(48, 48, rotation(np.pi / 2))).dense(96, 96)
    expected = torch.rot90(masks.dense(96, 96), -1, (1, 2))
    assert (turned != expected).float().mean() < 1e-4
    slanted = masks.warp(about(48, 48, rotation(0.3)))
    assert 0.9 < slanted.dense(140, 140).sum() / masks.dense(96, 96).sum() < 1.4  # the crop ends at whole cells


def test_boxes_beyond_the_frame_lose_only_what_is_outside():
    coefficients, prototypes, _ = make(3, 7)
    boxes = torch.tensor([[-30.0, -20, 40, 50], [80, 80, 140, 150], [200, 10, 240, 30]])
    masks = Masks.of_prototypes(coefficients, prototypes, boxes)
    assert torch.equal(masks.dense(96, 96), masks.clip(96, 96).dense(96, 96))
    assert torch.equal(masks.rle(96, 96).decode(), masks.dense(96, 96))
    assert not masks.dense(96, 96)[2].any()


def test_two_blobs_are_two_parts_and_come_back():
    y, x = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
    discs = torch.stack([12 - ((x - 12) ** 2 + (y - 14) ** 2).sqrt() - 4, 12 - ((x - 36) ** 2 + (y - 30) ** 2).sqrt() - 4])
    masks = Masks.of_prototypes(torch.ones(1, 1), discs.amax(0, keepdim=True).float(), torch.tensor([[0.0, 0, 192, 192]]))
    polygons = masks.polygons()
    assert len(polygons.parts(0)) == 2
    truth, back = masks.dense(192, 192), polygons.rasterise(192, 192)
    assert truth.sum() > 4000
    assert (truth & back).sum() / (truth | back).sum() >= 0.98


def test_a_ring_keeps_its_hole():
    y, x = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
    ring = 5 - (((x - 24) ** 2 + (y - 24) ** 2).float().sqrt() - 14).abs()
    masks = Masks.of_prototypes(torch.ones(1, 1), ring[None], torch.tensor([[0.0, 0, 192, 192]]))
    traced = masks.polygons()
    assert np.sign(sorted(ring_areas(traced.points.double().numpy(), traced.rings.numpy()))).tolist() == [-1, 1]
    assert torch.equal(masks.polygons().rasterise(192, 192), masks.dense(192, 192))


def test_joined_masks_of_different_tiles():
    left, right = Masks.of_prototypes(*make(4, 8)), Masks.of_prototypes(*make(5, 9, 64))
    joined = Masks.cat([left, Masks.empty(), right])
    assert torch.equal(joined.dense(96, 96), torch.cat((left.dense(96, 96), right.dense(96, 96))))
    assert torch.equal(joined[torch.tensor([7, 1])].dense(96, 96), joined.dense(96, 96)[[7, 1]])


@settings(max_examples=150, deadline=None)
@given(STACKS)
def test_codes_are_those_of_the_coco_tools(stack):
    masks = torch.from_numpy(stack)
    codes = Rle.of_masks(masks)
    assert torch.equal(codes.decode(), masks)
    assert torch.equal(codes.areas(), masks.flatten(1).sum(1))
    assert torch.equal(Rle.of_runs(Polygons.from_masks(stack).columns(*stack.shape[1:]), *stack.shape).counts, codes.counts)
    for mask, code in zip(stack, codes.coco(), strict=True):
        theirs = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert code == {"size": list(mask.shape), "counts": theirs["counts"].decode()}
        assert (Rle.from_coco(code).decode()[0].numpy() == mask).all()
        plain_counts = {"size": list(mask.shape), "counts": Rle.from_coco(code).counts.tolist()}
        assert (Rle.from_coco(plain_counts).decode()[0].numpy() == mask).all()


@pytest.mark.parametrize("counts", ["", "a", "1234~", "é", [1, 2], [-1, 10], b"\xff\xff"])
def test_broken_codes_are_refused(counts):
    with pytest.raises(ValueError, match="expected"):
        Rle.from_coco({"size": [3, 3], "counts": counts})


def test_indexing_codes():
    masks = torch.rand(5, 7, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    codes = Rle.of_masks(masks)
    assert torch.equal(codes[torch.tensor([4, 0])].decode(), masks[[4, 0]])
    assert torch.equal(Rle.cat([codes[:2], codes[2:]]).decode(), masks)
    for bounds, mask in zip(codes.bounds(), masks, strict=True):
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        assert bounds.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_a_part_of_the_frame_alone_is_the_same():
    masks = Masks.of_prototypes(*make(40))
    full, codes = masks.dense(96, 96).numpy(), masks.rle(96, 96)
    for left, top, right, bottom in ((0, 0, 96, 96), (20, 31, 70, 60), (95, 0, 96, 96), (40, 40, 40, 50), (30, 7, 90, 7)):
        part = full[:, top:bottom, left:right]
        assert all(np.array_equal(codes.crop(i, left, top, right, bottom), mask) for i, mask in enumerate(part))
        for (crop, x, y), mask in zip(masks.crops((left, top, right, bottom)), part, strict=True):
            again = np.zeros_like(mask)
            again[y - top : y - top + crop.shape[0], x - left : x - left + crop.shape[1]] = crop
            assert np.array_equal(again, mask)


def test_codes_move_with_their_frame():
    masks = torch.rand(4, 7, 6, generator=torch.Generator().manual_seed(2)) < 0.5
    masks[1] = False
    codes = Rle.of_masks(masks)
    larger = codes.warp(scaling(3, 2))
    assert (larger.height, larger.width) == (14, 18)
    assert torch.equal(larger.decode(), masks.repeat_interleave(2, 1).repeat_interleave(3, 2))
    mirrored = codes.warp(about(3, 3.5, scaling(-1, 1)))
    assert torch.equal(mirrored.decode(), masks.flip(2))
    assert torch.equal(codes.clip(4, 5).decode(), masks[:, :4, :5])
    shares = codes.visible(4, 5)
    assert shares[1] == 0
    assert shares[0].item() == pytest.approx((masks[0, :4, :5].sum() / masks[0].sum()).item())
    assert len(Rle.empty().warp(scaling(2, 2)).clip(3, 3)) == len(Rle.empty().bounds()) == 0


def test_bits_come_back():
    masks = torch.rand(3, 5, 20, generator=torch.Generator().manual_seed(1)) < 0.5
    packed = pack_bits(masks)
    assert packed.shape == (3, 5, 3)
    assert packed[0, 0, 0] == sum(128 >> i for i in range(8) if masks[0, 0, i])
    assert torch.equal(unpack_bits(packed)[..., :20], masks)


@given(bits=hnp.arrays(bool, hnp.array_shapes(min_dims=3, max_dims=3, max_side=7)))
@settings(max_examples=60, deadline=None)
def test_bits_keep_their_cells_however_smooth_their_edges(bits):
    masks = Masks.of_cells(bits, 3)
    assert len(masks) == len(bits)
    full = masks.dense(3 * bits.shape[1], 3 * bits.shape[2]).numpy()
    assert (full[:, 1::3, 1::3] == bits).all()
    moved = masks.warp(translation(2, 1))[1:].dense(3 * bits.shape[1] + 1, 3 * bits.shape[2] + 2).numpy()
    assert (moved[:, 1:, 2:] == full[1:]).all()


def test_no_bits_are_no_masks():
    assert len(Masks.of_cells([])) == 0
    assert Masks.of_cells([np.zeros((4, 5), bool)]).dense(4, 5).sum() == 0
    assert torch.equal(Masks.of_cells([np.ones((4, 5), bool)]).dense(4, 5), torch.ones(1, 4, 5, dtype=torch.bool))


def test_smooth_bits_are_nearer_to_what_they_were_taken_from():
    def disc(radius, size):
        return np.hypot(*(np.mgrid[:size, :size] + 0.5 - size / 2)) <= radius

    smooth = Masks.of_cells(disc(10, 32)[None], 4).dense(128, 128)[0].numpy()
    stairs = disc(10, 32).repeat(4, 0).repeat(4, 1)
    assert 0 < (smooth != disc(40, 128)).sum() < 0.6 * (stairs != disc(40, 128)).sum()
