"""What a new detector takes from given weights: the outputs of a class by its name, everything else by its place."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor, nn

from ..models.blocks import ClassOutput

FEW = 5  # names that a line tells


def take_weights(detector: nn.Module, given: nn.Module, names: Sequence[str], given_names: Sequence[str], tell: bool = True) -> None:
    """Copy every tensor of `given` that fits `detector`, whose classes are `names`; the others keep their fresh values.

    Where `given_names` are others, or in another order, a `ClassOutput` gets the rows of the names that both have, and keeps its own for
    the rest; one class against one class is the same, as when it is scored. `tell`: say on stderr what starts fresh.
    """
    own, other = detector.state_dict(), given.state_dict()
    fitting = {name: value for name, value in other.items() if name in own and own[name].shape == value.shape}
    told = []
    if list(names) != list(given_names) and max(len(names), len(given_names)) > 1:
        outputs = [parts for parts in class_outputs(detector) if all(name in other for name in parts)]
        rows = shared_rows(names, given_names)
        fits = [parts for parts in outputs if all(own[name].shape[1:] == other[name].shape[1:] for name in parts)]
        for name in (name for parts in outputs for name in parts):
            fitting.pop(name, None)
        fitting |= {name: _placed(own[name], other[name], rows) for parts in fits for name in parts}
        told.append(_by_name(names, rows if fits else [], "" if fits in ([], outputs) else f" in {len(fits)} of {len(outputs)} outputs"))
    detector.load_state_dict(fitting, strict=False)
    if len(fitting) < len(own):
        told.append(f"{len(own) - len(fitting)} of {len(own)} tensors do not fit these classes and start fresh")
    for line in told if tell else ():
        print(line, file=sys.stderr)


def class_outputs(model: nn.Module) -> list[list[str]]:
    """Names of the tensors of each `ClassOutput`, whose rows are the classes."""
    return [
        [f"{name}.{part}" for part, _ in module.named_parameters()]
        for name, module in model.named_modules()
        if isinstance(module, ClassOutput)
    ]


def shared_rows(names: Sequence[str], given_names: Sequence[str]) -> list[tuple[int, int]]:
    """(place in `names`, place in `given_names`) of the names that are in both; of equal names the first is the first."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(given_names):
        places[name].append(place)
    return [(row, places[name].pop(0)) for row, name in enumerate(names) if places[name]]


def _placed(own: Tensor, other: Tensor, rows: Sequence[tuple[int, int]]) -> Tensor:
    result = own.clone()
    for row, place in rows:
        result[row] = other[place]
    return result


def _by_name(names: Sequence[str], rows: Sequence[tuple[int, int]], where: str) -> str:
    taken = {row for row, _ in rows}
    fresh = [name for row, name in enumerate(names) if row not in taken]
    few = f", the others start fresh: {', '.join(fresh[:FEW])}{', ...' if len(fresh) > FEW else ''}" if fresh else ""
    return f"{len(taken)} of {len(names)} classes are taken by name{where} from the weights given{few}"
