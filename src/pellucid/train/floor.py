"""The noise floor of a training step: `numerics.noise` over the tasks of this package, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor, nn

from ..models.blocks import ConvUnit
from ..numerics.noise import HALF, Noise, Observed, Run, Yardstick
from ..types import Batch, Dense, Output
from .step import TrainStep

Backward = Callable[[TrainStep, Tensor], None]


def backward(step: TrainStep, loss: Tensor) -> None:
    """As training does it: outside autocast."""
    loss.backward()


def steps_of(make: Callable[[], TrainStep], batches: Sequence[Batch], backward: Backward = backward, deep: bool = False) -> Run:
    """A run of `numerics.noise.measure`: as many eager steps as batches, by a step that `make` builds anew in the same state every time.

    Each gives its loss and its gradients before clipping, both without the loss scale. Without a noise no hook is laid on the detector.
    `deep` changes the output of every layer too: for candidates that sum in another order from the first layer on.
    """

    def run(noise: Noise | None = None) -> tuple[Observed, ...]:
        step = make()
        if noise is not None:
            step.detector.register_forward_hook(lambda module, given, output: noisy(output, noise))
            for layer in (module for module in step.detector.modules() if deep and isinstance(module, nn.Conv2d | ConvUnit)):
                layer.register_forward_hook(lambda module, given, output: noise(output))
        return tuple(observed(step, batch, backward) for batch in batches)

    return run


def observed(step: TrainStep, batch: Batch, backward: Backward = backward) -> Observed:
    """What one step gives; afterwards `step` has taken it."""
    for loss in step.losses_of(batch, last=True):
        backward(step, loss)
        step.collect()
    names = [name for name, p in step.detector.named_parameters() if p.requires_grad]
    found = {name: view / step.factor for name, view in zip(names, step.gradients.flat.views, strict=True)}
    seen = Observed(step.loss / step.factor, found)
    step.prepare()
    step.updater.optimizer.step()
    step.conclude()
    return seen


def primed(step: TrainStep, batches: Sequence[Batch]) -> TrainStep:
    """The step in the state it came in, once all that `capture` asks for is recorded for these batches."""
    states = [step.detector.state_dict(), step.ema.model.state_dict()]
    places = [value for state in states for value in state.values()]
    places += [*step.updater.moments(), step.ema.updates, step.scaler.scale, step.scaler.good, step.skipped, step.factor, step.loss]
    kept = [value.clone() for value in places]
    for batch in [*batches, *batches]:
        observed(step, batch)
    step.clear_losses()
    step.updater.steps = 0
    for place, value in zip(places, kept, strict=True):
        place.copy_(value)
    return step


def noisy(output: Output, noise: Noise) -> Output:
    """The output of an unfused detector with noise in all that the objective reads."""
    many = None if output.many is None else _noisy(output.many, noise)
    one = None if output.one is None else _noisy(output.one, noise)
    return replace(output, many=many, one=one, shared=noise(output.shared))


def yardstick(precision: str) -> Yardstick:
    """What is looked at in "32", "16" or "bf16"; a group is a part of the network: "backbone", "many.stems", "shared.flow"."""
    plain = Yardstick() if precision == "32" else Yardstick(HALF)
    return replace(plain, group=_part)


def _noisy(dense: Dense, noise: Noise) -> Dense:
    return replace(dense, outputs=noise(dense.outputs))


def _part(parameter: str) -> str:
    first, second, *_ = parameter.split(".")
    return f"{first}.{second}" if first in ("many", "one", "shared") else first
