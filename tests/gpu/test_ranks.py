"""Two devices: ranks that talk by NCCL, recorded or not, give the step of one process to within the noise floor."""

from functools import cache, partial

import pytest
import torch
from torch import distributed, multiprocessing

from pellucid.numerics.noise import Observed, Yardstick, deterministic, measure, table
from pellucid.numerics.tf32 import tf32_off
from pellucid.tasks import TASKS
from pellucid.train.floor import observed, primed, steps_of
from tests.train.test_ranks import OBJECTS, free_port, pictures, step_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device on this machine"),
]
MODES = ["none", "loss", "network", "loss+network", "step"]
CASES = [(name, mode) for name in sorted(TASKS) for mode in MODES]
ROWS = list(range(len(OBJECTS)))
DRAWS = 20


def one_rank(rank, world, port, folder):
    """Its half of the pictures in every case."""
    device = f"cuda:{rank}"
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    found = {}
    with tf32_off(), deterministic():
        for name, mode in CASES:
            batch = pictures(name, ROWS[rank::world]).to(device)
            step = step_of(name, 1, device, mode)
            found[name, mode] = taken(primed(step, [batch]) if mode != "none" else step, batch)
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def taken(step, batch):
    """The gradient of all ranks, by parameter, and the weights after the step."""
    for loss in step.losses_of(batch, last=True):
        loss.backward()
        step.collect()
    step.prepare()
    names = [name for name, p in step.detector.named_parameters() if p.requires_grad]
    share = step.factor if step.captured.whole else 1  # it is taken out in the recorded update
    gradients = {name: (view / share).cpu() for name, view in zip(names, step.gradients.flat.views, strict=True)}
    step.updater.optimizer.step()
    step.conclude()
    return gradients, {name: value.cpu() for name, value in step.detector.state_dict().items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(one_rank, (2, free_port(), str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@cache
def floor_of(name):
    """Of two steps with the large batch: a rounding in every layer, since halves of a batch sum in another order from the first one on."""
    with tf32_off(), deterministic():
        batch = pictures(name, ROWS).to("cuda")
        run = steps_of(partial(step_of, name, 1, "cuda"), [batch, batch], deep=True)
        return measure(run, DRAWS, Yardstick(("whole",)))


@pytest.mark.parametrize(("name", "mode"), CASES, ids=lambda value: str(value))
def test_two_ranks_give_the_step_of_one_process(both, name, mode):
    """The gradient of the first step; and of the second, by one process with the weights of the ranks, the loss too."""
    (gradients, weights), (theirs, their_weights) = (found[name, mode] for found in both)
    assert all(torch.equal(gradients[key], theirs[key]) for key in gradients)  # ranks never drift apart
    assert all(torch.equal(weights[key], their_weights[key]) for key in weights)
    step, batch = step_of(name, 1, "cuda"), pictures(name, ROWS).to("cuda")
    assert any(not torch.equal(value.cpu(), weights[key]) for key, value in step.detector.state_dict().items())
    step.detector.load_state_dict(weights)
    with tf32_off(), deterministic():
        later = observed(step, batch)
    first = Observed(torch.ones(()), {key: value.cuda() for key, value in gradients.items()})  # a loss of halves is not compared
    verdict = floor_of(name).judge(f"{name}, two ranks, {mode}", (first, later))
    print(table([verdict]))
    assert verdict.passed
    assert verdict.row("whole").value < 1e-4
