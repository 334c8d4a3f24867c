"""Weights on disk: safetensors with a card inside that says what they are; trainer checkpoints load through the same door."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .. import __version__
from ..errors import CheckpointError, MissingFileError, UsageError
from ..models.build import Detector, build
from ..models.scales import SCALES
from ..rules import STRIDE
from ..tasks import TASKS, Task

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Card:
    """What a weights file is: enough to build the model and to speak of its classes as the user does."""

    task: str
    scale: str
    names: tuple[str, ...]
    category_ids: tuple[int, ...]  # the user's id of each class
    imgsz: int = 640
    task_args: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # the training configuration
    version: str = __version__

    @property
    def nc(self) -> int:
        return len(self.names)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Card:
        """The card in a file; ValueError, TypeError or KeyError where it says nothing that a model can be built from."""
        values = json.loads(text)
        card = cls(**{**values, "names": tuple(values["names"]), "category_ids": tuple(values["category_ids"])})
        if card.scale not in SCALES or not card.names or len(card.category_ids) != card.nc:
            raise ValueError(f"scale {card.scale!r}, {card.nc} names, {len(card.category_ids)} ids")
        if type(card.imgsz) is not int or card.imgsz < STRIDE or card.imgsz % STRIDE:
            raise ValueError(f"imgsz {card.imgsz!r}")
        return card


def make_task(card: Card) -> Task:
    """The task that a card names."""
    if card.task not in TASKS:
        raise UsageError(f'the task must be one of {", ".join(TASKS)}, got "{card.task}"; choose another model or update pellucid')
    return TASKS[card.task](**card.task_args)


def create(card: Card, seed: int | None = None) -> Detector:
    """An untrained detector for a card; with `seed` the weights are the same every time and the global random state stays as it was."""
    task = make_task(card)
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        return build(card.scale, card.nc, task.stems, task.shared, task.training_only)


def save_weights(path: str | Path, state: Mapping[str, Tensor], card: Card, half: bool = False) -> None:
    """Write weights and card to a .safetensors file, whole or not at all; `half` stores float16."""
    path = Path(path)

    def stored(value: Tensor) -> Tensor:
        value = value.half() if half and value.is_floating_point() else value
        return value.detach().cpu().contiguous().clone()

    partial = path.with_name(path.name + ".part")
    save_file({name: stored(value) for name, value in state.items()}, partial, {"pellucid": card.to_json()})
    os.replace(partial, path)


def load_weights(path: str | Path) -> tuple[Detector, Card]:
    """The model in a .safetensors file, or the averaged model in a trainer's .ckpt, with its card."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"expected a weights file, found none at {path}; check the path")
    state, text = _read_safetensors(path) if path.suffix == ".safetensors" else _read_checkpoint(path)
    try:
        card = Card.from_json(text)
        model = create(card)
    except UsageError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"expected a card that pellucid wrote in {path}, got another ({error}); use a file that pellucid wrote"
        ) from error
    try:
        model.load_state_dict({name: value.float() if value.is_floating_point() else value for name, value in state.items()})
    except (RuntimeError, AttributeError) as error:
        raise CheckpointError(
            f"expected the weights of {card.task}-{card.scale} with {card.nc} classes in {path}, got others "
            f"({' '.join(str(error).split())[:200]} ...); use a file that pellucid wrote"
        ) from error
    return model.eval(), card


def open_model(
    name: str | Path, names: tuple[str, ...] = (), category_ids: tuple[int, ...] = (), imgsz: int = 640
) -> tuple[Detector, Card]:
    """A model by shipped name or path, or untrained by "<task>-<scale>" with the given class names (80 numbered ones if none are given)."""
    if is_untrained(name):
        task, _, scale = str(name).rpartition("-")
        names = names or tuple(f"class{i}" for i in range(80))
        card = Card(task, scale, names, category_ids or tuple(range(len(names))), imgsz)
        return create(card), card
    if name in shipped_names():
        return load_weights(HERE / f"{name}.safetensors")
    if Path(name).suffix in (".safetensors", ".ckpt"):
        return load_weights(name)
    raise UsageError(f'model: expected a weights file (.safetensors, .ckpt), or a name; got "{str(name)[:200]}"; {_advice(Path(name))}')


def _advice(given: Path) -> str:
    """What may have been meant by a name that is none."""
    for path in (given / "weights" / "best.safetensors", given.with_suffix(".safetensors") if given.name else given):
        if os.path.isfile(path):
            return f"did you mean {path}?"
    known = [*(f"{task}-{scale}" for task in TASKS for scale in SCALES), *shipped_names()]
    near = get_close_matches(str(given), known, 1, 0.7)
    return f"did you mean {near[0]}?" if near else f"names are {', '.join(known)}"


def is_untrained(name: str | Path) -> bool:
    """Whether this is "<task>-<scale>", a model with random weights."""
    task, _, scale = str(name).rpartition("-")
    return task in TASKS and scale in SCALES


def shipped_names() -> list[str]:
    """Names of the trained weights that come with the package."""
    return sorted(path.stem for path in HERE.glob("*.safetensors"))


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], str]:
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get("pellucid")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise CheckpointError(f"expected a safetensors file at {path}, got something else ({error}); copy or train it again") from error
    if text is None:
        raise CheckpointError(f"expected weights saved by pellucid, found no card inside {path}; use a file that pellucid wrote")
    return state, text


def _read_checkpoint(path: Path) -> tuple[dict[str, Tensor], str]:
    content = read_pickle(path)
    try:
        state, text = content["pellucid"]["ema"]["model"], content["pellucid"]["card"]
        return dict(state), str(text)
    except Exception as error:  # content may be of any kind
        raise CheckpointError(
            f"expected a checkpoint written by pellucid at {path}, found no card inside; use last.ckpt or best.ckpt of a run"
        ) from error


def read_pickle(path: Path) -> Any:
    """What a trainer checkpoint holds, loaded with weights_only, so that it cannot run code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles of a kind that is refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # on broken files the unpickler raises nearly anything
        asked = re.search(r"GLOBAL ([\w.]+)|[Uu]nsupported (?:class|global)[: ]+([\w.]+)", str(error))
        reason = f"it names {asked[1] or asked[2]}" if asked else type(error).__name__
        raise CheckpointError(
            f"expected a checkpoint of plain tensors at {path}, got one that is broken or asks to run code ({reason}); "
            "use a file that pellucid wrote"
        ) from error
