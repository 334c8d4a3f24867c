"""Two processes that train as one: the gradient, the update and the scores are those of one process with all the pictures."""

import socket

import pytest
import torch
from torch import multiprocessing

from pellucid.config import TrainConfig
from pellucid.geometry import Boxes
from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.train import ranks
from pellucid.train.criterion import REACHED, BranchLoss
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta, Instances, Targets
from tests.contracts.test_task import SHAPES

NC, SIZE = 3, 64
OBJECTS = (2, 1, 0, 2, 0, 0, 1, 2)  # of the pictures: rank 0 has the even ones in windows of two steps of two
CASES = [(name, window) for name in sorted(TASKS) for window in (1, 2)]
SHARE = 0.6


def pictures(name: str, rows: list[int]) -> Batch:
    """Noise with 0, 1 or 2 objects a picture, of every kind that the task needs."""
    task, half = TASKS[name](), torch.tensor([[0.5, 0, 0], [0, 0.5, 0], [0, 0, 1]], dtype=torch.float64)
    whole = Instances(torch.tensor([0, 2]), {need: SHAPES[need]().warp(half) for need in task.needs})
    assert isinstance(whole.shapes["boxes"], Boxes)
    pixels = [torch.randint(256, (3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(row)) for row in rows]
    valid = torch.stack([torch.arange(2) < OBJECTS[row] for row in rows])
    extras = {key: torch.stack([value] * len(rows)) for key, value in task.targets(whole, SIZE).items()}
    targets = Targets(whole.labels.repeat(len(rows), 1), valid, whole.shapes["boxes"].data.repeat(len(rows), 1, 1), extras)
    return Batch(torch.stack(pixels), targets, tuple(ImageMeta(row, row, "", SIZE, SIZE) for row in rows))


def step_of(name: str, window: int, device: str = "cpu", capture: str = "none") -> TrainStep:
    torch.manual_seed(0)
    task = TASKS[name]()
    model = build("n", NC, task.stems, task.shared, task.training_only).eval()  # BatchNorm by its running statistics: no split changes them
    config = TrainConfig(model=f"{name}-n", data="none", accumulate=window, warmup_epochs=0, clip_norm=0, capture=capture)
    step = TrainStep(model.to(device), task, config, NC, "32", 100)
    step.share.fill_(SHARE)
    return step


def update(name: str, window: int, parts: list[list[int]]) -> dict[str, torch.Tensor]:
    """The gradient of the large batch and how its step moves the weights."""
    step = step_of(name, window)
    for number, rows in enumerate(parts):
        for loss in step.losses_of(pictures(name, rows), last=number == len(parts) - 1):
            loss.backward()
            step.collect()
    step.prepare()
    gradient, before = step.gradients.flat.vector.clone(), weights(step)
    step.updater.optimizer.step()
    step.conclude()
    return {"gradient": gradient, "moved": weights(step) - before}


def weights(step: TrainStep) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in step.detector.parameters()])


def one_rank(rank: int, world: int, port: int, folder: str) -> None:
    """What a process does: its share of every case, and one of the collectives alone."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    mine = list(range(rank, len(OBJECTS), world))
    found = {}
    for name, window in CASES:
        rows = mine[:2] if window == 1 else mine
        found[f"{name} {window}"] = update(name, window, [rows[start : start + 2] for start in range(0, len(rows), 2)])
    counts = {"pairs": torch.tensor(3 + rank), "cls": torch.tensor(0.5 + rank)}
    found["counts"] = ranks.of_all([counts, counts])[1]
    found["gathered"] = ranks.gathered({rank: "seen"})
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(one_rank, (2, free_port(), str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize(("name", "window"), CASES, ids=lambda value: str(value))
def test_two_ranks_give_the_gradient_and_the_step_of_one(both, name, window):
    rows = list(range(4 if window == 1 else 8))
    whole = update(name, 1, [rows])
    assert sum(OBJECTS[row] for row in rows) > 2
    ours, theirs = (found[f"{name} {window}"] for found in both)
    assert torch.equal(ours["gradient"], theirs["gradient"])  # ranks never drift apart
    assert torch.equal(ours["moved"], theirs["moved"])
    difference = apart(ours["gradient"], whole["gradient"])
    print(f"{name}, window {window}: gradient {difference:.1e}, update {apart(ours['moved'], whole['moved']):.1e}")
    assert difference < 1e-4
    assert apart(ours["moved"], whole["moved"]) < 1e-3  # the orthogonal step of matrices with small singular values magnifies


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_plain_sum_of_the_ranks_would_be_another_gradient(both, name):
    """Each part divided by its own: what a DDP that knows nothing of the divisors gives."""
    parts = [update(name, 1, [rows])["gradient"] for rows in ([0, 2], [1, 3])]
    assert apart(parts[0] + parts[1], both[0][f"{name} 1"]["gradient"]) > 1e-2


def test_counts_are_those_of_all_ranks(both):
    for found in both:
        assert found["counts"]["pairs"] == 7
        assert found["counts"]["pairs"].dtype == torch.int64
        assert found["counts"]["cls"] == 2.0
        assert found["gathered"] == [{0: "seen"}, {1: "seen"}]


def test_one_process_alone_needs_no_group():
    assert ranks.world() == 1
    assert ranks.gathered("state") == ["state"]
    assert ranks.add_up(torch.tensor(2.0)) == 2


@pytest.mark.parametrize(("sums", "teaches"), [((-3.0, 5.0), True), ((-5.0, 3.0), False)])
def test_a_floor_is_that_of_the_whole_batch(sums, teaches):
    """Two parts on different sides of the floor teach together or not at all, as the large batch does."""
    values = [torch.tensor(value, requires_grad=True) for value in sums]
    whole = {"far": torch.tensor(4.0), "pairs": torch.tensor(4), "far" + REACHED: torch.tensor(sum(sums))}
    part = {"far": torch.tensor(2.0), "pairs": torch.tensor(2)}
    losses = [BranchLoss({"far": v}, {**part, "far" + REACHED: v.detach()}, {"far": 0.0}, frozenset()).total(whole) for v in values]
    sum(losses).backward()
    assert [value.grad.item() if value.grad is not None else 0.0 for value in values] == ([0.25, 0.25] if teaches else [0.0, 0.0])
    assert sum(losses).item() == pytest.approx(max(sum(sums) / 4, 0.0))


def test_a_floor_does_not_hide_what_is_undefined():
    undefined = torch.tensor(float("nan"))
    counts = {"far": torch.tensor(2.0), "pairs": torch.tensor(2), "far" + REACHED: undefined}
    assert BranchLoss({"far": undefined}, counts, {"far": 0.0}, frozenset()).total().isnan()
