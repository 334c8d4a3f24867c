"""From weights to a file that was compared with them: written beside its place, looked at, and put there only if it is as good."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import ExportConfig, required
from ..errors import PellucidError, UsageError
from ..rules import writable
from ..zoo import Card, make_task, open_model
from .facts import INPUT, KEY, Facts
from .graph import Graph, to_onnx
from .parity import Gaps, compare, sample_canvases
from .runtime import FOLDER, XML, is_exported, open_exported, package

if TYPE_CHECKING:
    from ..models.build import Detector

NEEDS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
UNFIT = ".differs"  # in the name of a file that is not as good as torch


@dataclass(frozen=True)
class Export:
    """What was written."""

    path: Path  # a file, or the folder of an OpenVINO model
    format: str
    facts: Facts
    size: int  # bytes
    seconds: float
    gaps: Gaps

    def lines(self) -> list[str]:
        facts = self.facts
        side, batch = facts.card.imgsz, "batch" if facts.batch is None else facts.batch
        kind = f"{self.format}, opset {facts.opset}, {'float16' if facts.half else 'float32'}, head {facts.head}"
        told = f"{INPUT} ({batch}, 3, {side}, {side}) uint8 RGB -> {', '.join(facts.outputs)}"
        return [f"{self.path}: {kind}, {self.size / 1e6:.1f} MB in {self.seconds:.0f} s", told, *self.gaps.lines()]

    def to_dict(self) -> dict[str, Any]:
        facts = self.facts
        said = {"head": facts.head, "half": facts.half, "opset": facts.opset, "imgsz": facts.card.imgsz, "batch": facts.batch}
        outputs = {"outputs": list(facts.outputs), "bytes": self.size, "seconds": round(self.seconds, 2)}
        return {"path": str(self.path), "format": self.format, **said, **outputs, "parity": self.gaps.to_dict()}


def export(config: ExportConfig, opened: tuple[Detector, Card] | None = None) -> Export:
    """Write the model that `config` names and compare it with torch.

    Where they differ too much the file is kept under another name, and PellucidError says so.
    """
    began = time.perf_counter()
    required(config, "model")
    for name in NEEDS[config.format]:
        package(name, f"format={config.format}")
    if is_exported(config.model):
        raise UsageError(f"model: expected weights (.safetensors, .ckpt) or a name, got the exported {config.model}; export its weights")
    detector, card = opened or open_model(config.model)
    card = replace(card, imgsz=config.imgsz or card.imgsz)
    target = _target(config)
    with writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent)
    with beside as folder:
        made = Path(folder) / target.name
        facts = _write(made, detector.eval().cpu(), card, config)
        gaps = _compare(made, detector, card, config)
        size = made.stat().st_size if made.is_file() else sum(path.stat().st_size for path in made.iterdir())
        if gaps.faults:
            unfit = _unfit(target)
            _place(made, unfit)
            raise PellucidError(
                f"expected {target.name} to be within tolerance of torch, got a difference of {'; '.join(gaps.faults)}; the file is kept "
                f"as {unfit} to be looked into: try half=false, simplify=false or another opset"
            )
        _place(made, target)
    return Export(target, config.format, facts, size, time.perf_counter() - began, gaps)


def _target(config: ExportConfig) -> Path:
    """Where the file goes: `out`, else beside the weights, else here."""
    suffix = FOLDER if config.format == "openvino" else ".onnx"
    if config.out and not config.out.rstrip("/").endswith(suffix):
        raise UsageError(f"out: expected a name that ends in {suffix} for format={config.format}, got {config.out!r}; add the ending")
    weights = Path(config.model)
    place = weights.parent if weights.suffix in (".safetensors", ".ckpt") else Path()
    stem = weights.stem if weights.suffix in (".safetensors", ".ckpt") else weights.name
    target = Path(config.out) if config.out else place / f"{stem}{suffix}"
    for place in (target, _unfit(target)):
        if place.exists() and not (place.is_dir() == (config.format == "openvino") and _is_ours(place)):
            raise UsageError(f"out: expected {place} to be free or an earlier export, got something else; choose another name")
    return target


def _unfit(target: Path) -> Path:
    """The name under which a file that is not as good as torch is kept."""
    return target.with_name(f"{target.stem}{UNFIT}{target.suffix}")


def _is_ours(place: Path) -> bool:
    """Whether a file has the card of an export, of whatever version; a folder without files has room for one."""
    if place.is_file():
        import onnx

        try:
            model = onnx.load(place, load_external_data=False)
        except Exception:  # of whatever reads what is no ONNX file
            return False
        return any(item.key == KEY for item in model.metadata_props)
    xml = place / XML
    return not any(place.iterdir()) or (xml.is_file() and f"<{KEY} ".encode() in xml.read_bytes())


def _write(made: Path, detector: Detector, card: Card, config: ExportConfig) -> Facts:
    """The file at `made`; what it says of itself."""
    import onnx

    graph = Graph(detector, make_task(card), config.head, config.max_det, config.half)
    columns, shared = graph.shapes(card.imgsz)
    fixed = None if config.dynamic else config.batch
    facts = Facts(card, config.head, config.half, fixed, config.max_det, config.opset, columns, shared)
    names = (INPUT, "batch", facts.outputs)
    model = to_onnx(graph, card.imgsz, config.batch, config.dynamic, config.opset, names, config.simplify)
    opset = next(item.version for item in model.opset_import if item.domain == "")
    if opset != config.opset:
        raise UsageError(f"opset: expected one that torch can write here, got {config.opset}, and torch wrote {opset}; take {opset}")
    onnx.helper.set_model_props(model, {KEY: facts.to_json(), "task": card.task, "imgsz": str(card.imgsz)})
    onnx.checker.check_model(model)
    if config.format == "onnx":
        made.write_bytes(model.SerializeToString())
    else:
        _write_openvino(made, model.SerializeToString(), facts)
    return facts


def _write_openvino(made: Path, model: bytes, facts: Facts) -> None:
    openvino = package("openvino", "format=openvino")
    network = openvino.Core().read_model(model)
    network.set_rt_info(facts.to_json(), [KEY])
    openvino.save_model(network, made / XML, compress_to_fp16=facts.half)


def _compare(made: Path, detector: Detector, card: Card, config: ExportConfig) -> Gaps:
    network, _ = open_exported(made)
    fused = detector.fuse("one" if config.head == "o2o" else "both")
    canvases = sample_canvases(card.imgsz, config.source)
    return compare(fused, network, make_task(card), network.facts.path, canvases, config.half, config.batch)


def _place(made: Path, target: Path) -> None:
    """Put what was made where it belongs, over an earlier export."""
    if made.is_file():
        os.replace(made, target)
        return
    target.mkdir(exist_ok=True)
    for path in made.iterdir():
        shutil.move(path, target / path.name)
