"""The backward of BatchNorm and SiLU on a GPU: the kernel gives what the plain formula gives, in any layout, and in a recording."""

import pytest
import torch
from torch.nn.functional import batch_norm, silu

from pellucid.numerics import normed
from pellucid.numerics.normed import normed_silu

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
SHAPES = [(4, 16, 40, 40), (2, 80, 7, 5), (3, 300, 4, 4), (2, 1, 9, 9), (64, 3, 1, 1)]
EXACT = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of the largest value


def given(shape: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = (2 * torch.randn(shape, generator=g) + 0.5).to("cuda", dtype).contiguous(memory_format=layout)
    gradient = torch.randn(shape, generator=g).to("cuda", dtype)
    return [gradient, x, *(torch.randn(shape[1], generator=g).cuda() for _ in range(4))]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_gives_what_the_formula_gives(shape, dtype, layout):
    kernels = normed._kernels()
    parts = given(shape, dtype, layout)
    found, again, expected = kernels.silu_gradient(*parts), kernels.silu_gradient(*parts), normed.silu_gradient(*parts)
    assert found.dtype == expected.dtype == dtype
    assert torch.equal(found, again)
    assert (found - expected).abs().max() <= EXACT[dtype] * expected.abs().max()


@pytest.mark.parametrize("dtype", EXACT)
def test_the_gradients_are_those_of_the_layers_and_of_a_recording(dtype):
    _, x, *_ = given(SHAPES[0], dtype, torch.channels_last)
    weight, bias = (torch.linspace(0.5, 1.5, x.shape[1], device="cuda").requires_grad_() for _ in range(2))
    x.requires_grad_()
    upstream = torch.randn_like(x)
    known = lambda: (torch.zeros(x.shape[1], device="cuda"), torch.ones(x.shape[1], device="cuda"))  # noqa: E731

    def work(function):
        output = function(known())
        return [output.detach(), *torch.autograd.grad(output, (x, weight, bias), upstream)]

    ours = lambda: work(lambda moved: normed_silu(x, moved, weight, bias, 0.03, 1e-3))  # noqa: E731
    plain = work(lambda moved: silu(batch_norm(x, *moved, weight, bias, True, 0.03, 1e-3)))
    eager = ours()
    assert torch.equal(eager[0], plain[0])
    for found, expected in zip(eager, plain, strict=True):
        assert (found - expected).abs().max() <= 2 * EXACT[dtype] * expected.abs().max()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ours()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        recorded = ours()
    for tensor in recorded:
        tensor.zero_()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(recorded, eager, strict=True))


def test_less_memory_is_held():
    _, x, *_ = given((16, 64, 160, 160), torch.float16, torch.channels_last)
    x.requires_grad_()
    weight, bias = (torch.ones(64, device="cuda", requires_grad=True) for _ in range(2))
    size = x.numel() * x.element_size()
    before = torch.cuda.memory_allocated()
    output = normed_silu(x, (None, None), weight, bias, 0.03, 1e-3)
    assert output.requires_grad
    assert torch.cuda.memory_allocated() - before < 1.1 * size  # its output alone
