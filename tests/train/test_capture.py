"""`capture` on a CPU: graphs are stood in for by work that is done again, which shows that whatever changes reaches them."""

from dataclasses import replace
from functools import cache, partial
from io import BytesIO

import pytest
import torch

from pellucid.errors import UsageError
from pellucid.tasks import TASKS
from pellucid.train import capture
from pellucid.train.floor import observed, primed
from pellucid.train.step import TrainStep
from pellucid.types import Batch
from tests.train.test_floor import batch_of, make


class Again:
    """A graph whose replay does the work again on what lies in its places now, and spoils what other recordings gave.

    Recordings share memory: what one keeps until its end may lie where another, recorded before it, has its middles.
    """

    replays, last = 0, None

    def __init__(self, work, pool, stream):
        self.work, self.result = work, None

    def replay(self):
        Again.replays += 1
        if Again.last not in (None, self):
            spoil(Again.last.result)
        Again.last = self
        with torch.enable_grad():
            self.result = self.work()
        return self.result


@torch.no_grad()
def spoil(result):
    if isinstance(result, torch.Tensor):
        result.fill_(-1)
    for part in result.values() if isinstance(result, dict) else result if isinstance(result, tuple | list) else ():
        spoil(part)


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    monkeypatch.setattr(capture, "Graph", Again)
    monkeypatch.setattr(capture, "DEVICES", ("cpu",))
    Again.replays, Again.last = 0, None


def stream(name):
    """Batches with other pictures, a single picture, and nothing on them."""
    usual = [batch_of(name, seed) for seed in range(2)]
    first = usual[0]
    targets = first.targets.replaced(lambda tensor: tensor[:1].clone())
    partial_batch = Batch(first.images[:1].clone(), targets, first.metas[:1])
    nothing = replace(usual[1], targets=replace(usual[1].targets, valid=torch.zeros_like(usual[1].targets.valid)))
    return [*usual, partial_batch, nothing, partial_batch, usual[0]]


def trained(name, how, accumulate=1, precision="32", optimizer="musgd"):
    base = make(name, precision, optimizer)
    config = replace(base.config, capture=how, accumulate=accumulate)
    step = TrainStep(base.detector, TASKS[name](), config, 3, precision, 8)
    batches = stream(name)
    for number, batch in enumerate(batches):
        step.share.fill_(0.8 - 0.05 * number)
        step(batch, last=number == len(batches) - 1)
    return step


def state_of(step):
    places = {
        **{f"model.{k}": v for k, v in step.detector.state_dict().items()},
        **{f"ema.{k}": v for k, v in step.ema.model.state_dict().items()},
    }
    return places | {f"moment{i}": v for i, v in enumerate(step.updater.moments())} | step.losses() | {"scale": step.scaler.scale}


def alike(one, other):
    theirs = state_of(other)
    return all(torch.equal(value, theirs[key]) for key, value in state_of(one).items())


@cache
def plain_state(name, accumulate):
    return state_of(trained(name, "none", accumulate))


WHOLE = [(name, 1, "step") for name in sorted(TASKS)]


@pytest.mark.parametrize(
    ("name", "accumulate", "how"), [*WHOLE, ("detect", 2, "step"), ("segment", 2, "step"), ("pose", 1, "loss"), ("detect", 2, "loss")]
)
def test_training_is_the_same_to_the_bit(name, accumulate, how):
    plain = plain_state(name, accumulate)
    assert Again.replays == 0
    captured = state_of(trained(name, how, accumulate))
    assert Again.replays >= 2
    assert [key for key, value in plain.items() if not torch.equal(value, captured[key])] == []


def test_another_optimizer():
    plain, captured = (trained("detect", how, optimizer="adamw") for how in ("none", "step"))
    assert alike(plain, captured)
    assert captured.updater.steps == plain.updater.steps == 6


def stopped_and_resumed(how, optimizer, precision="32", device="cpu"):
    """A step that goes on, and one that takes up its checkpoint at half-way, once it has recorded everything in a state of its own."""

    def begin():
        base = make("detect", precision, optimizer, device)
        return TrainStep(base.detector, TASKS["detect"](), replace(base.config, capture=how), 3, precision, 8)

    first, second = begin(), begin()
    batches = [batch_of("detect", seed).to(device) for seed in range(4)]
    for batch in batches[:2]:
        first(batch)
    file = BytesIO()
    torch.save([first.detector.state_dict(), first.updater.optimizer.state_dict(), first.state_dict()], file)
    for _ in range(3):
        second(batches[3])
    assert not alike(first, second)
    weights, moments, rest = torch.load(BytesIO(file.getvalue()), map_location="cpu")
    second.detector.load_state_dict(weights)
    second.updater.optimizer.load_state_dict(moments)
    second.load_state_dict(rest)
    for batch in batches[2:]:
        first(batch)
        second(batch)
    return first, second


@pytest.mark.parametrize("optimizer", ["musgd", "adamw"])
def test_a_resumed_run_goes_on_alike(optimizer):
    assert alike(*stopped_and_resumed("step", optimizer))
    assert Again.replays > 4


def test_infinities_are_skipped_alike():
    def poisoned(how):
        step = TrainStep(make("detect", "16").detector, TASKS["detect"](), replace(make("detect", "16").config, capture=how), 3, "16", 8)
        for number in range(4):
            step.scaler.scale.fill_(1e30 if number == 2 else 256.0)
            step(batch_of("detect", number))
        return step

    plain, captured = poisoned("none"), poisoned("step")
    assert plain.skipped == captured.skipped == 1
    assert alike(plain, captured)


def test_a_stale_rate_is_seen(monkeypatch):
    plain = state_of(trained("detect", "none"))
    monkeypatch.setattr("pellucid.train.optimizer.Updater.set_rates", lambda self: None)
    stale = state_of(trained("detect", "step"))
    assert any(not torch.equal(value, stale[key]) for key, value in plain.items())


def test_primed_leaves_the_state_as_it_was():
    step = make("pose", "32")
    step = TrainStep(step.detector, TASKS["pose"](), replace(step.config, capture="step"), 3, "32", 8)
    before = {key: value.clone() for key, value in state_of(step).items()}
    primed(step, [batch_of("pose")])
    assert Again.replays >= 1
    assert all(torch.equal(value, before[key]) for key, value in state_of(step).items() if key not in step.names)
    plain = observed(make("pose", "32"), batch_of("pose"))
    replayed = observed(step, batch_of("pose"))
    assert torch.equal(plain.loss, replayed.loss)
    assert all(torch.equal(value, replayed.gradients[key]) for key, value in plain.gradients.items())


def test_the_least_used_recording_is_given_up():
    kept = capture.Recordings(torch.device("cpu"))
    made = []
    for key in [*range(capture.KEPT), 0, capture.KEPT, 0]:
        kept.get(key, partial(made.append, key))
    assert made == [*range(capture.KEPT), capture.KEPT]
    assert len(kept) == capture.KEPT


def test_a_cpu_is_refused(monkeypatch):
    monkeypatch.setattr(capture, "DEVICES", ("cuda",))
    config = replace(make("detect", "32").config, capture="step")
    with pytest.raises(UsageError, match="expected a CUDA device for capture=step, got cpu"):
        TrainStep(make("detect", "32").detector, TASKS["detect"](), config, 3, "32", 8)
