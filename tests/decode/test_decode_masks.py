"""Masks from the network's output to original pixels, on both paths: each belongs to its row, its box and its image."""

import pytest
import torch
from torch.nn.functional import interpolate

from pellucid.decode import decode, restore
from pellucid.geometry import Letterbox
from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.types import Dense, Output

SIZE, CLASSES = 64, 3


@pytest.fixture(scope="module")
def output() -> Output:
    """Of an untrained network, with coefficients large enough for masks of all forms."""
    task = TASKS["segment"]()
    torch.manual_seed(0)
    detector = build("n", CLASSES, task.stems, task.shared, task.training_only).eval()
    with torch.no_grad():
        found = detector(torch.rand(2, 3, SIZE, SIZE))
    g = torch.Generator().manual_seed(1)

    def lively(dense: Dense) -> Dense:
        noise = {name: torch.randn(value.shape, generator=g) for name, value in dense.outputs.items()}
        outputs = {"cls": noise["cls"] * 3, "box": dense.outputs["box"] + noise["box"].abs(), "coefficients": noise["coefficients"] * 3}
        return Dense(outputs, dense.points, dense.strides)

    smooth = interpolate(torch.randn(2, 32, 4, 4, generator=g), size=found.shared["proto"].shape[-2:], mode="bilinear")
    return Output(lively(found.many), lively(found.one), {"proto": smooth}, found.size)


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_each_mask_is_its_rows_own(output, path):
    """By the formula: the upsampled sum of its image's prototypes, positive, inside its box."""
    dense = output.one if path == "e2e" else output.many
    boxes = TASKS["segment"]().shapes(dense.outputs, dense.points, dense.strides)["boxes"]
    centre = torch.arange(SIZE) + 0.5
    for image, found in enumerate(decode(output, TASKS["segment"](), path, conf=0.5, max_det=20)):
        assert len(found) >= 10
        masks = found.shapes["masks"].dense(SIZE, SIZE)
        assert 0.05 < masks.float().mean() < 0.9
        for box, mask in zip(found.shapes["boxes"].data, masks, strict=True):
            anchor = (boxes[image] - box).abs().sum(-1).argmin()
            logits = torch.einsum("k,khw->hw", dense.outputs["coefficients"][image, anchor], output.shared["proto"][image])
            full = interpolate(logits[None, None], size=(SIZE, SIZE), mode="bilinear")[0, 0]
            inside = ((centre >= box[1]) & (centre < box[3]))[:, None] & ((centre >= box[0]) & (centre < box[2]))
            clear = full.abs() > 1e-4
            assert torch.equal(mask & clear, (full > 0) & inside & clear)


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_restored_masks_are_the_canvas_masks_in_original_pixels(output, path):
    """Where the letterbox scales by whole numbers, original pixels lie under the canvas's: blocks of the canvas mask agree."""
    placed = Letterbox.fit(40, 64, SIZE)  # a shift alone
    found = decode(output, TASKS["segment"](), path, conf=0.5, max_det=20)[0]
    restored = restore(found, placed)
    assert len(restored) >= 8
    kept = [int((found.scores == score).nonzero()[0]) for score in restored.scores]
    on_canvas = found.shapes["masks"].dense(SIZE, SIZE)[kept][:, placed.top : placed.top + 40]
    assert torch.equal(restored.shapes["masks"].dense(40, 64), on_canvas)
    assert torch.equal(restored.shapes["masks"].boxes, restored.shapes["boxes"].data)


def test_an_image_alone_and_in_a_batch(output):
    def only(dense: Dense) -> Dense:
        return Dense({name: value[1:] for name, value in dense.outputs.items()}, dense.points, dense.strides)

    alone = Output(only(output.many), only(output.one), {name: value[1:] for name, value in output.shared.items()}, output.size)
    for path in ("e2e", "nms"):
        first, second = (decode(o, TASKS["segment"](), path, conf=0.5, max_det=20)[-1] for o in (alone, output))
        assert torch.equal(first.shapes["masks"].dense(SIZE, SIZE), second.shapes["masks"].dense(SIZE, SIZE))


def test_nothing_found_gives_no_masks(output):
    for path in ("e2e", "nms"):
        nothing = decode(output, TASKS["segment"](), path, conf=1.0)[0]
        assert len(nothing) == len(nothing.shapes["masks"]) == 0
        assert restore(nothing, Letterbox.fit(40, 64, SIZE)).shapes["masks"].dense(40, 64).shape == (0, 40, 64)
