"""The mask losses' kernels on a GPU: the figures of the blocks, the same twice, captured as they are called, and fast in a crowd."""

import pytest
import torch

from pellucid.geometry.masks import pack_bits
from pellucid.losses import mask_blocks, masks
from pellucid.losses.masks import mask_bce, mask_iou
from pellucid.types import Pairs

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
K = 32


def crowd(batch: int = 2, objects: int = 40, looks: int = 10, side: int = 80, seed: int = 0) -> Pairs:
    """Objects of 2 to 14 cells, `looks` pairs each, the last quarter of them not there."""
    g = torch.Generator().manual_seed(seed)
    low, size = torch.rand(batch, objects, 2, generator=g) * (side - 4), 2 + 12 * torch.rand(batch, objects, 2, generator=g)
    boxes = torch.cat((low, low + size), -1) * 4
    boxes[:, objects * 3 // 4 :] = 0
    cells = torch.arange(side) * 4 + 2.0
    inside = (cells >= boxes[..., 0, None]) & (cells < boxes[..., 2, None]), (cells >= boxes[..., 1, None]) & (cells < boxes[..., 3, None])
    bits = pack_bits(inside[1][..., :, None] & inside[0][..., None, :])
    owner = torch.arange(objects).repeat_interleave(looks).expand(batch, -1)
    coefficients, proto = torch.randn(batch, objects * looks, K, generator=g) / 4, torch.randn(batch, K, side, side, generator=g)
    truth = boxes.gather(1, owner[..., None].expand(-1, -1, 4))
    on = {
        name: value.cuda()
        for name, value in {"c": coefficients, "p": proto, "b": bits, "o": owner.contiguous(), "t": truth, "x": boxes}.items()
    }
    nothing = torch.zeros(batch, objects * looks, device="cuda")
    return Pairs(
        {"coefficients": on["c"].requires_grad_()},
        {},
        {"boxes": on["t"]},
        {"proto": on["p"].to(memory_format=torch.channels_last).requires_grad_()},
        on["o"],
        *[nothing] * 4,
        size=(side * 4, side * 4),
        objects={"masks": on["b"], "boxes": on["x"]},
    )


def run(pairs: Pairs) -> list[torch.Tensor]:
    loss = mask_bce(pairs)
    weight = torch.linspace(0, 1, loss.numel(), device="cuda").view_as(loss)
    grads = torch.autograd.grad((loss * weight).sum(), (pairs.outputs["coefficients"], pairs.shared["proto"]))
    looks = pairs.outputs["coefficients"].detach().unflatten(1, (-1, 10))
    boxes = pairs.truth["boxes"].unflatten(1, (-1, 10)) + torch.linspace(-9, 9, 10, device="cuda")[:, None]
    return [loss.detach(), *grads, mask_iou(looks, pairs.shared["proto"].detach(), boxes, pairs.objects["masks"])]


def test_the_kernels_give_what_the_blocks_give(monkeypatch):
    pairs = crowd()
    assert masks._backend(pairs.shared["proto"]) is not mask_blocks
    ours, again = run(pairs), run(pairs)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    torch.backends.cuda.matmul.allow_tf32 = False
    monkeypatch.setattr(masks, "_backend", lambda proto: mask_blocks)
    for ours_, plain in zip(ours, run(pairs), strict=True):
        assert plain.abs().max() > 0.1
        assert (ours_ - plain).abs().max() <= 1e-4 * plain.abs().max()


def test_they_can_be_captured():
    pairs = crowd()
    eager = run(pairs)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run(pairs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(pairs)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(eager, captured, strict=True))


def test_a_crowd_takes_little_memory_and_time(monkeypatch):
    pairs = crowd(16, 256, 10, 160)

    def milliseconds() -> tuple[float, int]:
        run(pairs)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(3):
            run(pairs)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 3, torch.cuda.max_memory_allocated() - held

    fast, memory = milliseconds()
    monkeypatch.setattr(masks, "_backend", lambda proto: mask_blocks)
    slow, _ = milliseconds()
    print(f"kernels {fast:.2f} ms, blocks {slow:.1f} ms, {memory / 1e6:.0f} MB")
    assert fast < slow / 3
    assert memory < 16 * 256 * 10 * 160 * 160 // 4
