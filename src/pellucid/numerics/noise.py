"""How far apart two runs of the same function may be: a measured yardstick in place of a guessed tolerance.

Capture and compilation change the order of roundings, so what they give is compared with what one rounding does. A step is run as it is,
twice, which must give the same bits; then n times with the outputs of the head, and their gradients, changed by at most one unit in the
last place. Whatever a test asserts is evaluated for every draw: the largest is the floor, and 2.5 times it the bound. `docs/noise.md`
shows it on a model that has nothing to do with this package.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import PellucidError

FACTOR = 2.5  # bound over the largest draw
DRAWS = 20
ABSOLUTE = 1e-5  # norms below it count as it: a gradient that is zero in exact arithmetic holds only residue
SINGLE = ("loss", "parameter", "whole", "group")  # metrics of a step in float32
HALF = ("loss", "whole", "cosine", "group")  # and in half precision, where a bound by parameter would admit everything
LATER = ("loss", "whole")  # and of steps after the first
METRICS = tuple(dict.fromkeys(SINGLE + HALF))


class NotExactError(PellucidError, ValueError):
    """A step that gives other bits when it is run again, so that no difference can be put down to what is tested."""


@contextmanager
def deterministic() -> Iterator[None]:
    """A region in which convolutions of a GPU sum in the same order every time: in float32 their fastest kernels do not."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


@dataclass(frozen=True)
class Observed:
    """What one step gave: its loss, and the gradient of every parameter by name."""

    loss: Tensor  # ()
    gradients: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        if not self.gradients:
            raise ValueError(
                "gradients: expected those of some parameters, got none; call backward() on the loss before they are looked at"
            )

    @classmethod
    def of(cls, loss: Tensor, module: torch.nn.Module) -> Observed:
        """After backward: copies of the loss and of every gradient that is there."""
        found = {name: p.grad.detach().clone() for name, p in module.named_parameters() if p.grad is not None}
        return cls(loss.detach().clone(), found)


class Noise:
    """Changes what passes through it by one rounding, forward and backward: x (1 + eps u), u uniform in [-1, 1], eps that of its type.

    `draw` None changes nothing. Every call draws anew, from a generator of its own: the random state of the model is not touched.
    """

    def __init__(self, draw: int | None = None, forward: bool = True, backward: bool = True) -> None:
        self.draw, self.forward, self.backward = draw, forward, backward
        self.calls = 0  # tensors changed, and gradients of them
        self._generators: dict[torch.device, torch.Generator] = {}

    def __call__(self, value: Any) -> Any:
        """`value` with every floating tensor in it changed: a tensor, or mappings, lists and tuples of them."""
        if isinstance(value, Tensor):
            return self._through(value) if value.is_floating_point() else value
        if isinstance(value, Mapping):
            return {name: self(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            parts = [self(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value

    def _through(self, tensor: Tensor) -> Tensor:
        self.calls += 1
        return tensor if self.draw is None else _Through.apply(tensor, self)

    def rounded(self, tensor: Tensor) -> Tensor:
        """The tensor times 1 + eps u, rounded to its own type."""
        wide = torch.float64 if tensor.dtype in (torch.float32, torch.float64) else torch.float32
        u = torch.rand(tensor.shape, generator=self._generator(tensor.device), device=tensor.device, dtype=wide) * 2 - 1
        return (tensor.to(wide) * (1 + torch.finfo(tensor.dtype).eps * u)).to(tensor.dtype)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.draw or 0)
        return self._generators[device]


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, noise: Noise) -> Tensor:
        ctx.noise = noise
        return noise.rounded(tensor) if noise.forward else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.noise.rounded(gradients[0]) if ctx.noise.backward else gradients[0], None


Steps = Observed | Sequence[Observed]
Norms = tuple[float, float, float]  # of the difference, of the native gradient, of the other, in float64
Run = Callable[[Noise], Steps]  # the same start every time: weights, data, random state
Grouping = Callable[[str], str]  # the group of a parameter


def first_name(parameter: str) -> str:
    """ "backbone" of "backbone.0.weight"."""
    return parameter.partition(".")[0]


@dataclass(frozen=True)
class Yardstick:
    """Which differences are looked at; `draws` at least 20 for a claim."""

    metrics: tuple[str, ...] = SINGLE
    later: tuple[str, ...] = LATER
    group: Grouping = first_name
    absolute: float = ABSOLUTE

    def __post_init__(self) -> None:
        for field, names in (("metrics", self.metrics), ("later", self.later)):
            if isinstance(names, str) or not set(names) <= set(METRICS):
                raise ValueError(
                    f"{field}: expected some of {', '.join(METRICS)}, got {names!r}; take SINGLE, HALF or a tuple of these names"
                )

    def differences(self, native: Steps, other: Steps) -> dict[str, float]:
        """Every metric by name, "group NAME" and "parameter NAME" among them; those of a later step as "2: whole" (the third)."""
        pairs = _pairs(native, other)
        found: dict[str, float] = {}
        for number, (a, b) in enumerate(pairs):
            chosen = self.later if number else self.metrics
            values = {name: value for name, value in self._all(a, b).items() if name.partition(" ")[0] in chosen}
            found |= {f"{number}: {name}" if number else name: value for name, value in values.items()}
        return found

    def _all(self, native: Observed, other: Observed) -> dict[str, float]:
        if set(native.gradients) != set(other.gradients):
            missing = sorted(set(native.gradients) ^ set(other.gradients))
            raise ValueError(
                f"gradients: expected the same parameters in both runs, got {missing[0]!r} in one alone; compare like with like"
            )
        norms = {name: _norms(native.gradients[name], other.gradients[name]) for name in native.gradients}
        groups: dict[str, list[str]] = {}
        for name in norms:
            groups.setdefault(self.group(name), []).append(name)
        return {
            "loss": _share(abs(float(native.loss) - float(other.loss)), abs(float(native.loss)), self.absolute),
            **{f"parameter {name}": self._of([norm]) for name, norm in norms.items()},
            "whole": self._of(norms.values()),
            "cosine": _one_less_cosine(norms.values()),
            **{f"group {label}": self._of(norms[name] for name in names) for label, names in sorted(groups.items())},
        }

    def _of(self, norms: Iterable[Norms]) -> float:
        """Norm of the difference over the norm, of several parameters together."""
        errors, sizes, *_ = zip(*norms, strict=True)
        return _share(math.hypot(*errors), math.hypot(*sizes), self.absolute)


@dataclass(frozen=True)
class Floor:
    """What one rounding at the head does to each metric, draw by draw."""

    native: Steps
    draws: Mapping[str, Sequence[float]]  # metric -> one value a draw
    yardstick: Yardstick
    factor: float = FACTOR

    def largest(self, metric: str) -> float:
        return max(self.draws[metric])

    def judge(self, case: str, candidate: Steps) -> Verdict:
        """The candidate (a replay, a compiled step, another device) against this floor; of the parameters the worst alone is kept."""
        found = self.yardstick.differences(self.native, candidate)
        rows = [Row(metric, found[metric], tuple(self.draws[metric]), self.factor) for metric in self.draws]
        parameters = [row for row in rows if row.metric.startswith("parameter ")]
        worst = [max(parameters, key=lambda row: row.ratio)] if parameters else []
        return Verdict(case, (*(row for row in rows if row not in parameters), *worst))


@dataclass(frozen=True)
class Row:
    """One metric of one case."""

    metric: str
    value: float
    draws: tuple[float, ...]
    factor: float

    @property
    def floor(self) -> float:
        """The largest draw."""
        return max(self.draws)

    @property
    def bound(self) -> float:
        return self.factor * self.floor

    @property
    def ratio(self) -> float:
        """The value over the largest draw."""
        if self.floor == 0:
            return 0.0 if self.value == 0 else math.inf
        return self.value / self.floor

    @property
    def passed(self) -> bool:
        return self.value <= self.bound

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: _plain(getattr(self, name)) for name in ("value", "floor", "bound", "ratio")}
        return {"metric": self.metric, **numbers, "passed": self.passed, "draws": [_plain(draw) for draw in self.draws]}


@dataclass(frozen=True)
class Verdict:
    """How a candidate compares with the floor, by metric."""

    case: str
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)

    def row(self, metric: str) -> Row:
        """The row of that name; "parameter" is that of the worst parameter."""
        return next(row for row in self.rows if metric in (row.metric, row.metric.partition(" ")[0]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with every draw."""
        rows = [row.to_dict() for row in self.rows]
        return {"case": self.case, "passed": self.passed, "native_gap": 0.0, "rows": rows}


def measure(run: Run, draws: int = DRAWS, yardstick: Yardstick | tuple[str, ...] = SINGLE, factor: float = FACTOR) -> Floor:
    """The noise floor of `run`, which starts from the same state at every call and passes the outputs of its head through its argument.

    `yardstick` is a `Yardstick`, or its metrics alone (SINGLE, HALF). NotExactError where two runs without noise differ by a bit.
    """
    if draws < 1:
        raise ValueError(f"draws: expected at least 1, got {draws}; 20 make a claim")
    yardstick = yardstick if isinstance(yardstick, Yardstick) else Yardstick(yardstick)
    quiet = Noise()
    native = run(quiet)
    if not quiet.calls:
        raise ValueError("run: expected it to pass the outputs of its head through the noise that it is given, got none; call it on them")
    _check_exact(native, run(Noise()))
    found: dict[str, list[float]] = {}
    for draw in range(draws):
        for metric, value in yardstick.differences(native, run(Noise(draw))).items():
            found.setdefault(metric, []).append(value)
    return Floor(native, found, yardstick, factor)


def report(verdicts: Sequence[Verdict], device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `json.dumps` writes: where it was measured, and every case with every draw."""
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "torch": torch.__version__, "passed": all(v.passed for v in verdicts), "cases": [v.to_dict() for v in verdicts]}


def table(verdicts: Sequence[Verdict]) -> str:
    """A Markdown table, a line a metric of each case: the value, the median and the largest draw, value / largest, and the judgement."""
    lines = [
        "| case | metric | value | median draw | largest draw | value / largest | bound | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for verdict in verdicts:
        for row in verdict.rows:
            numbers = (row.value, sorted(row.draws)[len(row.draws) // 2], row.floor)
            cells = (*(f"{number:.2e}" for number in numbers), f"{row.ratio:.2f}", f"{row.factor:g}", "ok" if row.passed else "FAILS")
            lines.append(f"| {verdict.case} | {row.metric} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _steps(value: Steps) -> Sequence[Observed]:
    return (value,) if isinstance(value, Observed) else value


def _pairs(native: Steps, other: Steps) -> list[tuple[Observed, Observed]]:
    """The steps of two runs, first with first."""
    a, b = _steps(native), _steps(other)
    if len(a) != len(b):
        raise ValueError(f"steps: expected {len(a)}, as the first run has, got {len(b)} of the other; run both for as many")
    return list(zip(a, b, strict=True))


def _check_exact(first: Steps, second: Steps) -> None:
    for number, (a, b) in enumerate(_pairs(first, second)):
        parts = {"loss": (a.loss, b.loss), **{name: (value, b.gradients[name]) for name, value in a.gradients.items()}}
        for name, (x, y) in parts.items():
            if not torch.equal(x, y):
                gap = (x.double() - y.double()).abs().max().item()
                raise NotExactError(
                    f"run: expected the same bits twice, got a difference of {gap:.3g} in {name} at step {number}; "
                    "fix seeds and start state, or take deterministic kernels"
                )


def _norms(native: Tensor, other: Tensor) -> Norms:
    a, b = native.double().flatten(), other.to(native.device).double().flatten()
    error, size, found = torch.stack(((a - b).norm(), a.norm(), b.norm())).tolist()
    return error, size, found


def _share(error: float, size: float, absolute: float) -> float:
    """error / size; infinite where it is no number, so that no bound admits it."""
    share = error / max(size, absolute)
    return share if math.isfinite(share) else math.inf


def _one_less_cosine(norms: Iterable[Norms]) -> float:
    """1 - cosine, from |a - b|^2 = (|a| - |b|)^2 + 2 |a| |b| (1 - cosine): nothing cancels."""
    error, size, other = (math.hypot(*part) for part in zip(*norms, strict=True))
    if size == 0 or other == 0:
        return float(size != other)
    found = (error**2 - (size - other) ** 2) / (2 * size * other)
    return max(found, 0.0) if math.isfinite(found) else math.inf


def _plain(value: float) -> float | None:
    """As JSON can hold it; None for what is infinite."""
    return value if math.isfinite(value) else None
