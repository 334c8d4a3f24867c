"""Device work recorded once and replayed: the loss, the network, the whole step, the update (CUDA graphs).

A piece runs eagerly the first time its shapes come, which is a real step and warms all libraries up, and is recorded the second time.
Recording executes nothing, so statistics and random state never notice it. What changes between steps is read from tensors that keep
their place: the batch is copied into them, learning rates, branch weight and loss scale are filled in place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ..errors import UsageError
from ..types import Batch, Output, Targets
from .criterion import Both

if TYPE_CHECKING:
    from .step import TrainStep

T = TypeVar("T")
DEVICES = ("cuda",)  # that record
KEPT = 12  # recordings of one piece; the least used is given up for a new one


class Graph:
    """A recorded piece of work; its results keep their place, and their values until another recording of the same pool is replayed."""

    def __init__(self, work: Callable[[], Any], pool: Any, stream: Any) -> None:
        self._graph, self._device = torch.cuda.CUDAGraph(), torch.cuda.current_device()
        # another thread may copy pictures meanwhile
        with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self.result = work()

    def replay(self) -> Any:
        with torch.cuda.device(self._device):
            self._graph.replay()
        return self.result


class Recordings:
    """What was recorded for each key, the least used given up first; `ready` says when a key comes for the second time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.how: dict[str, Any] = {"pool": None, "stream": None}  # memory and stream that all recordings of a piece share
        if device.type == "cuda":
            self.how = {"pool": torch.cuda.graph_pool_handle(), "stream": torch.cuda.Stream(device)}
        self._made: OrderedDict[Hashable, Any] = OrderedDict()
        self._seen: set[Hashable] = set()

    def ready(self, key: Hashable) -> bool:
        known = key in self._seen
        self._seen.add(key)
        return known

    def first(self, work: Callable[[], T], reads: Sequence[Tensor], gives: Callable[[T], Sequence[Tensor]]) -> T:
        """Work done eagerly, on the stream that is going to record it: leaves of a graph that a caller still holds then belong to it.

        `reads` and `gives` are the tensors that cross over: their memory is not used again before both streams are done with it.
        """
        stream = self.how["stream"]
        if stream is None:
            return work()
        main = torch.cuda.current_stream(self.device)
        stream.wait_stream(main)
        for tensor in reads:
            tensor.record_stream(stream)
        with torch.cuda.stream(stream):
            result = work()
        main.wait_stream(stream)
        for tensor in gives(result):
            tensor.record_stream(main)
        return result

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            if len(self._made) >= KEPT:
                self._made.popitem(last=False)
            with on(self.device):
                self._made[key] = make()
        self._made.move_to_end(key)
        return self._made[key]

    def __len__(self) -> int:
        return len(self._made)


def let_streams_cross() -> None:
    """Have autograd not warn that a leaf was made on another stream than its gradient: lanes meet again inside a recording, and a loss
    that a caller still holds has leaves of the eager step."""
    getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda wanted: None)(False)  # torch may be older


def on(device: torch.device) -> AbstractContextManager:
    """The device of new streams and graphs."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def check_device(capture: str, device: torch.device) -> None:
    """UsageError where the device cannot record what `capture` names."""
    if capture != "none" and device.type not in DEVICES:
        raise UsageError(f"capture: expected a CUDA device for capture={capture}, got {device.type}; leave it out")


class Captured:
    """The pieces of a `TrainStep` that `capture` names: none, loss, network, loss+network or step."""

    def __init__(self, step: TrainStep, capture: str) -> None:
        check_device(capture, step.device)
        self.parts = frozenset(capture.split("+")) - {"none"}
        self.step = step
        self._loss, self._network, self._whole, self._update = (Recordings(step.device) for _ in range(4))
        if self.parts:
            let_streams_cross()
        self._like: Both | None = None  # counts of an eager part, as those of a recorded one will look

    @property
    def objective(self) -> bool:
        """Whether the objective is in a graph: what it divides by must then be known before."""
        return bool(self.parts & {"loss", "step"})

    @property
    def whole(self) -> bool:
        return "step" in self.parts

    def network(self, images: Tensor) -> Output:
        """The detector's output for (B, 3, S, S), recorded where asked for."""
        if "network" not in self.parts:
            return self.step.look_at(images)
        key = signature([images])
        if not self._network.ready(key):
            return self._network.first(lambda: self.step.look_at(images), [images], raw)
        piece: NetworkPiece = self._network.get(key, lambda: NetworkPiece(self.step, images, self._network.how))
        return piece(images)

    def loss(self, output: Output, targets: Targets, images: int, counts: Both | None) -> tuple[Tensor, Both]:
        """The loss of a part of a window of so many `images`, and what its sums are divided by; recorded where asked for."""
        if "loss" not in self.parts:
            return self.step.score(output, targets, images, counts)
        reads = [*raw(output), *tensors_of(targets)]
        key = (signature(reads), images, counts is None)
        if not self._loss.ready(key):
            loss, own = self._loss.first(lambda: self.step.score(output, targets, images, counts), reads, lambda r: [r[0], *counted(r[1])])
            self._like = held(own)
            return loss, own
        piece: LossPiece = self._loss.get(key, lambda: LossPiece(self.step, output, targets, images, self._counts(counts), self._loss.how))
        return piece(output, targets, counts)

    def learn(self, batch: Batch, images: int, counts: Both | None) -> Both:
        """Forward, objective and backward of a part of a window, its gradient taken up; what its sums are divided by."""
        reads = [batch.images, *tensors_of(batch.targets)]
        key = (signature(reads), images, counts is None)
        if not self._whole.ready(key):
            own = self._whole.first(lambda: learned(self.step, batch, images, counts), reads, counted)
            self._like = held(own)
            return own
        piece: WholePiece = self._whole.get(key, lambda: WholePiece(self.step, batch, images, self._counts(counts), self._whole.how))
        return piece(batch, counts)

    def _counts(self, given: Both | None) -> PlacesOfCounts:
        assert self._like is not None  # an eager part came first
        return PlacesOfCounts(None if given is None else held(given), held(self._like))

    def update(self) -> None:
        """The rest of an update after its rates are set: unscale, clip, step, average, loss scale."""
        key = self._places()
        if not self._update.ready(key):
            return self.step.update()
        graph: Graph = self._update.get(key, lambda: Graph(self.step.update, **self._update.how))
        graph.replay()

    def _places(self) -> tuple[int, ...]:
        """Where that lives which changes from step to step: a graph that reads other places would be stale."""
        step = self.step
        values = [v for group in step.updater.optimizer.param_groups for v in (group["lr"], group.get("momentum"))]
        values += [step.scaler.scale, step.scaler.good, step.factor, step.gradients.flat.vector, *step.updater.moments()]
        return tuple(value.data_ptr() for value in values if isinstance(value, Tensor))


def learned(step: TrainStep, batch: Batch, images: int, counts: Both | None) -> Both:
    loss, own = step.score(step.look_at(batch.images), batch.targets, images, counts)
    loss.backward()
    step.collect()
    return own


@dataclass(frozen=True)
class PlacesOfCounts:
    """What a recording divides by, None for its own counts, and where these go: outside the memory that recordings share, for a window
    needs them when other parts have been replayed.
    """

    given: Both | None
    own: Both

    def fill(self, counts: Both | None) -> None:
        if self.given is not None and counts is not None:
            fill(counted(self.given), counted(counts))


class WholePiece:
    """One graph from pixels to the gradient's vector."""

    def __init__(self, step: TrainStep, batch: Batch, images: int, counts: PlacesOfCounts, how: dict[str, Any]) -> None:
        self.batch, self.counts = batch.replaced(torch.clone), counts

        def work() -> None:
            fill(counted(counts.own), counted(learned(step, self.batch, images, counts.given)))

        self.graph = Graph(work, **how)

    def __call__(self, batch: Batch, counts: Both | None) -> Both:
        fill([self.batch.images, *tensors_of(self.batch.targets)], [batch.images, *tensors_of(batch.targets)])
        self.counts.fill(counts)
        self.graph.replay()
        return self.counts.own


class LossPiece:
    """One graph of the objective, forward and backward down to the head's outputs."""

    def __init__(self, step: TrainStep, output: Output, targets: Targets, images: int, counts: PlacesOfCounts, how: dict[str, Any]) -> None:
        self.leaves = [value.detach().clone().requires_grad_(value.requires_grad) for value in raw(output)]
        self.output, self.targets, self.counts = rebuilt(output, self.leaves), targets.replaced(torch.clone), counts

        def work() -> tuple[Tensor, list[Tensor | None]]:
            loss, own = step.score(self.output, self.targets, images, counts.given)
            fill(counted(counts.own), counted(own))
            free = iter(torch.autograd.grad(loss, [leaf for leaf in self.leaves if leaf.requires_grad], allow_unused=True))
            return loss.detach(), [next(free) if leaf.requires_grad else None for leaf in self.leaves]

        self.graph = Graph(work, **how)

    def __call__(self, output: Output, targets: Targets, counts: Both | None) -> tuple[Tensor, Both]:
        fill(tensors_of(self.targets), tensors_of(targets))
        self.counts.fill(counts)
        loss: Tensor = _Loss.apply(self, *raw(output))
        return loss, self.counts.own


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, piece: LossPiece, *values: Tensor) -> Tensor:
        fill(piece.leaves, values)
        loss, ctx.gradients = piece.graph.replay()
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *[None if g is None else g * gradient.to(g.dtype) for g in ctx.gradients]


class NetworkPiece:
    """Two graphs: the network's forward, and its backward from gradients of the outputs."""

    def __init__(self, step: TrainStep, images: Tensor, how: dict[str, Any]) -> None:
        self.images = images.clone()
        self.params = [p for p in step.detector.parameters() if p.requires_grad]
        self.ahead = Graph(lambda: step.look_at(self.images), **how)
        values = raw(self.ahead.result)
        self.learns = [value.requires_grad for value in values]
        taught = [value for value in values if value.requires_grad]
        self.gradients = [torch.zeros_like(value) for value in taught]
        self.back = Graph(lambda: list(torch.autograd.grad(taught, self.params, self.gradients, allow_unused=True)), **how)
        # the recorded autograd graph ends here: its accumulators belong to the stream of the recording
        self.output = self.ahead.result = rebuilt(self.ahead.result, [value.detach() for value in values])

    def __call__(self, images: Tensor) -> Output:
        self.images.copy_(images)
        return rebuilt(self.output, _Network.apply(self, *self.params))


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, piece: NetworkPiece, *params: Tensor) -> tuple[Tensor, ...]:
        ctx.piece = piece
        found = tuple(value.detach() for value in raw(piece.ahead.replay()))
        ctx.mark_non_differentiable(*[value for value, learns in zip(found, piece.learns, strict=True) if not learns])
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [gradient for gradient, taught in zip(gradients, ctx.piece.learns, strict=True) if taught]
        for place, gradient in zip(ctx.piece.gradients, given, strict=True):
            place.zero_() if gradient is None else place.copy_(gradient)
        found = ctx.piece.back.replay()
        return None, *[None if gradient is None else gradient.detach() for gradient in found]


def raw(output: Output) -> list[Tensor]:
    """The tensors that learn: both branches and what anchors share."""
    assert output.many is not None
    assert output.one is not None
    return [*output.many.outputs.values(), *output.one.outputs.values(), *output.shared.values()]


def rebuilt(like: Output, tensors: Sequence[Tensor]) -> Output:
    """The same output with other tensors, in the order of `raw`."""
    rest = iter(tensors)
    assert like.many is not None
    assert like.one is not None
    many = replace(like.many, outputs={name: next(rest) for name in like.many.outputs})
    one = replace(like.one, outputs={name: next(rest) for name in like.one.outputs})
    return replace(like, many=many, one=one, shared={name: next(rest) for name in like.shared})


def tensors_of(targets: Targets) -> list[Tensor]:
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    targets.replaced(note)
    return found


def signature(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """What must be the same for a recording to fit: shapes and dtypes."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)


def held(counts: Both) -> Both:
    """A copy that no later step overwrites."""
    many, one = ({name: value.detach().clone() for name, value in part.items()} for part in counts)
    return many, one


def counted(counts: Both) -> list[Tensor]:
    """The tensors of both branches, in an order of their own."""
    return [part[name].detach() for part in counts for name in sorted(part)]


@torch.no_grad()
def fill(places: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for place, value in zip(places, values, strict=True):
        place.copy_(value, non_blocking=True)
