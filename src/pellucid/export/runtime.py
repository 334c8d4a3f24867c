"""Exported files as networks: pictures in, `Output` out, so that prediction and scoring read them as they read a detector."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import CheckpointError, MissingFileError, UsageError
from ..geometry import Shape
from ..tasks import Task
from ..types import Dense, Output
from ..zoo import Card, make_task
from .facts import INPUT, KEY, ROWS, SCORES, Facts

FOLDER, XML = "_openvino", "model.xml"
Run = Callable[[np.ndarray], Sequence[np.ndarray]]  # (B, 3, S, S) uint8 -> the outputs in their order


class Exported(nn.Module):
    """An exported file in the place of a detector: images (B, 3, S, S) uint8 -> `Output` of one branch, decoded within the file."""

    def __init__(self, run: Run, facts: Facts, name: str) -> None:
        super().__init__()
        self._run, self.facts, self.name = run, facts, name
        self.task: Task = make_task(facts.card)

    def forward(self, images: Tensor) -> Output:
        size = self.facts.card.imgsz
        parts = dict(zip(self.facts.outputs, self._in_steps(images.cpu().numpy()), strict=True))
        dense = self._of_rows(parts[ROWS]) if ROWS in parts else self._of_anchors(parts)
        many, one = (None, dense) if ROWS in parts else (dense, None)
        return Output(many, one, {name: parts[name] for name in self.facts.shared}, (size, size))

    def accept(self, config: Any) -> None:
        """Raise UsageError for settings that were decided when the file was written."""
        card, facts = self.facts.card, self.facts
        if facts.head == "o2o" and config.max_det > facts.max_det:
            raise UsageError(f"max_det: expected at most {facts.max_det}, as {self.name} was exported, got {config.max_det}; take less")
        if getattr(config, "path", None) not in (None, facts.path):
            other = "o2m" if facts.head == "o2o" else "o2o"
            raise UsageError(
                f"path: expected {facts.path}, the one branch in the exported {self.name}, got {config.path}; "
                f"export the weights with head={other}"
            )
        wanted = {"imgsz": (None, card.imgsz), "device": ("auto", "cpu"), "precision": (getattr(type(config), "precision", None),)}
        for name, allowed in {**wanted, "half": (False,)}.items():
            value = getattr(config, name, allowed[0])
            if value not in allowed:
                raise UsageError(f"{name}: expected {allowed[-1]}, as the exported {self.name} has decided, got {value}; leave it out")

    def describe(self) -> dict[str, Any]:
        """What `info` says of the file."""
        facts, card = self.facts, self.facts.card
        said = {"task": card.task, "scale": card.scale, "nc": card.nc, "imgsz": card.imgsz, "head": facts.head, "opset": facts.opset}
        batch = "any" if facts.batch is None else facts.batch
        return {"model": self.name, **said, "precision": "16" if facts.half else "32", "batch": batch, "outputs": ", ".join(facts.outputs)}

    def _in_steps(self, images: np.ndarray) -> list[Tensor]:
        """All outputs; where the batch is fixed, in steps of that many pictures, the last filled up."""
        step = self.facts.batch or len(images)
        found = []
        for start in range(0, len(images), step):
            part = images[start : start + step]
            filled = np.concatenate([part, np.zeros((step - len(part), *part.shape[1:]), part.dtype)])
            found.append([value[: len(part)] for value in self._run(filled)])
        return [torch.from_numpy(np.concatenate(values)) for values in zip(*found, strict=True)]

    def _of_rows(self, rows: Tensor) -> Dense:
        """A branch whose anchors are the rows: each has its score at its class, and no other class."""
        place, *others = self.facts.columns
        lengths = [prod(self.facts.columns[name]) for name in (place, *others)]
        where, score, label, *rest = rows.split([lengths[0], 1, 1, *lengths[1:]], -1)
        labels = label.long().clamp(0, self.facts.card.nc - 1)
        logits = torch.full((*rows.shape[:2], self.facts.card.nc), -torch.inf)
        logits.scatter_(-1, labels, score.double().logit().float())
        return self._dense(logits, dict(zip((place, *others), (where, *rest), strict=True)))

    def _of_anchors(self, parts: dict[str, Tensor]) -> Dense:
        return self._dense(parts[SCORES].double().logit().float(), {name: parts[name] for name in self.facts.columns})

    def _dense(self, logits: Tensor, values: dict[str, Tensor]) -> Dense:
        values = {name: value.unflatten(-1, self.facts.columns[name]) for name, value in values.items()}
        place = next(iter(values))
        kind: Callable[[Tensor], Shape] = self.task.kinds[place]
        boxes = kind(values[place].flatten(0, 1)).bounds().unflatten(0, logits.shape[:2])
        return Dense({"cls": logits}, torch.zeros(0, 2), torch.zeros(0), {**values, "boxes": boxes})


def is_exported(name: str | Path) -> bool:
    """Whether a model's name is that of an exported file or folder."""
    path = Path(name)
    return path.suffix == ".onnx" or path.name.endswith(FOLDER) or (path / XML).is_file()


def open_exported(name: str | Path) -> tuple[Exported, Card]:
    """The network in an exported file or folder; MissingFileError where there is none, CheckpointError where it holds something else."""
    path = Path(name)
    openvino = path.suffix != ".onnx"
    if not (path / XML if openvino else path).is_file():
        raise MissingFileError(f"model: expected {f'a folder with {XML}' if openvino else 'a file'} at {path}, found none; check the path")
    run, names, text = (_openvino if openvino else _onnxruntime)(path)
    facts = Facts.from_json(text, str(path))
    size = facts.card.imgsz
    if names != (((INPUT, (size, size)),), facts.outputs):
        raise CheckpointError(
            f"expected {path} to take {INPUT} of {size} pixels and give {', '.join(facts.outputs)}, "
            f"as its card says, got {names}; export it again"
        )
    return Exported(run, facts, str(name)), facts.card


def package(name: str, use: str) -> Any:
    """A package of the extra `export`, with its telemetry off; UsageError where it is not installed."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads it once, as it is imported
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # cannot be imported: openvino takes its stub
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{use}: expected the package {name}, found none ({error}); run pip install 'pellucid[export]'") from None


def _onnxruntime(path: Path) -> tuple[Run, Any, str | None]:
    """How to run a file, the names of its inputs and outputs, and its card."""
    runtime = package("onnxruntime", f"model={path}")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own for every failure
        raise _foreign(path, error) from error
    inputs = tuple((value.name, tuple(value.shape[2:])) for value in session.get_inputs())
    outputs = tuple(value.name for value in session.get_outputs())
    return lambda images: session.run(None, {INPUT: images}), (inputs, outputs), session.get_modelmeta().custom_metadata_map.get(KEY)


def _openvino(path: Path) -> tuple[Run, Any, str | None]:
    engine = package("openvino", f"model={path}")
    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    try:
        if b"<net " not in (path / XML).read_bytes()[:4096]:
            raise ValueError(f"{XML} holds no network")
        core = engine.Core()
        model = core.read_model(path / XML)
        text = model.get_rt_info([KEY]).value if model.has_rt_info([KEY]) else None
        compiled = core.compile_model(model, "CPU", settings)
        inputs = tuple((port.get_any_name(), tuple(port.get_partial_shape().get_max_shape())[2:]) for port in compiled.inputs)
        outputs = tuple(port.get_any_name() for port in compiled.outputs)
    except Exception as error:  # of whatever the parts of the engine raise
        raise _foreign(path, error) from error
    return lambda images: [np.array(value) for value in compiled(images).values()], (inputs, outputs), text


def _foreign(path: Path, error: Exception) -> CheckpointError:
    reason = " ".join(str(error).split())[:160]
    return CheckpointError(
        f"expected a model that `pellucid export` wrote at {path}, got one that cannot be run ({reason}); export it again"
    )
