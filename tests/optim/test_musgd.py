"""MuSGD against a reference that works matrix by matrix, and the parts of its contract."""

import copy

import pytest
import torch

from pellucid.models.build import build
from pellucid.optim.gradients import FlatGradients
from pellucid.optim.groups import parameter_groups
from pellucid.optim.musgd import MuSGD
from pellucid.optim.orthogonal import MatrixBatches, orthogonalise
from pellucid.tasks import TASKS


def newton_schulz(matrix: torch.Tensor) -> torch.Tensor:
    """Jordan's iteration, one matrix."""
    x = matrix / (matrix.norm() + 1e-7)
    x = x.T if len(matrix) > matrix.shape[1] else x
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
    return x.T if len(matrix) > matrix.shape[1] else x


class Reference:
    def __init__(self, params, lr, momentum, decay):
        self.params, self.lr, self.momentum, self.decay = params, lr, momentum, decay
        self.muon = [torch.zeros_like(p) for p in params]
        self.sgd = [torch.zeros_like(p) for p in params]

    def step(self, grads):
        for p, g, m, s in zip(self.params, grads, self.muon, self.sgd, strict=True):
            h = g + self.decay * p if p.dim() > 1 else g
            s.mul_(self.momentum).add_(h)
            update = h + self.momentum * s
            if p.dim() > 1:
                m.mul_(self.momentum).add_(g)
                turned = newton_schulz((g + self.momentum * m).flatten(1)).reshape(p.shape)
                update = update + 0.2 * turned
            p.sub_(self.lr * update)


@pytest.fixture
def params():
    torch.manual_seed(0)
    shapes = [(16, 3, 3, 3), (8, 64), (64, 8), (32, 1, 3, 3), (5, 5), (1, 7), (40, 24, 1, 1), (16,), (5,)]
    params = [torch.nn.Parameter(torch.randn(s)) for s in shapes]
    params[0].data = params[0].data.to(memory_format=torch.channels_last)
    return params


def optimizer_for(params):
    decayed, plain = [p for p in params if p.dim() > 1], [p for p in params if p.dim() < 2]
    return MuSGD([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=0.02, momentum=0.9, weight_decay=1e-2)


def give(params, seed):
    g = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=g)


def test_equals_the_per_matrix_reference(params):
    theirs = Reference([p.detach().clone() for p in params], 0.02, 0.9, 1e-2)
    optimizer = optimizer_for(params)
    for step in range(4):
        give(params, step)
        optimizer.step()
        theirs.step([p.grad for p in params])
    for ours, other in zip(params, theirs.params, strict=True):
        torch.testing.assert_close(ours.detach(), other, atol=2e-5, rtol=2e-5)


def test_singular_values_are_pushed_toward_one():
    torch.manual_seed(1)
    for matrix in (torch.randn(20, 60), torch.randn(64, 64)):
        values = torch.linalg.svdvals(orthogonalise(matrix[None])[0])
        assert torch.linalg.svdvals(matrix / matrix.norm()).max() < 0.5
        assert values.median() == pytest.approx(0.95, abs=0.25)
        assert values.max() < 1.25


def test_a_network_needs_few_batches():
    model = build("n", 80, TASKS["detect"]().stems)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    batches = MatrixBatches(matrices)
    assert len(matrices) == 126
    assert len(batches.sizes) < 12
    assert batches.total < 1.5 * sum(p.numel() for p in matrices)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_found_inf_changes_nothing(params, bad):
    optimizer = optimizer_for(params)
    give(params, 0)
    optimizer.step()
    before, state = [p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict()["state"])
    give(params, 1)
    params[0].grad[0, 0, 0, 0] = bad
    gradients = FlatGradients(params)
    gradients.collect()
    _, optimizer.found_inf = gradients.finish(clip=10.0, scale=torch.ones(()))
    assert optimizer.found_inf == 1
    optimizer.step()
    assert all(torch.equal(p, b) for p, b in zip(params, before, strict=True))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(after[k][n], state[k][n]) for k in state for n in state[k])


def test_restored_optimizer_goes_on_bit_for_bit(params):
    twin = [torch.nn.Parameter(p.detach().clone()) for p in params]
    first = optimizer_for(params)
    for step in range(2):
        give(params, step)
        first.step()
    for a, b in zip(twin, params, strict=True):
        a.data.copy_(b.data)
    second = optimizer_for(twin)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for step in range(2, 4):
        give(params, step)
        give(twin, step)
        first.step()
        second.step()
    assert all(torch.equal(a, b) for a, b in zip(params, twin, strict=True))


def test_class_stems_learn_three_times_as_fast():
    groups = parameter_groups(build("n", 3, TASKS["detect"]().stems), 0.01, 5e-4)
    fast = [g for g in groups if g["lr"] == pytest.approx(0.03)]
    assert sum(len(g["params"]) for g in fast) == 84
    assert sum(len(g["params"]) for g in groups) == 366
    assert all((g["weight_decay"] > 0) == (g["params"][0].dim() > 1) for g in groups)
