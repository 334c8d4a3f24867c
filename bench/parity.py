"""How far exported files are from torch: every task, format and number of pictures in a step, on weights and pictures that ship.

    python bench/parity.py [table.md [model ...]]

Prints a table on stderr and JSON on stdout. Compared are rows that reach a score, on the canvas that the weights were trained at: 0.05, and
less where a picture holds one object, so that each has five rows or more.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

import torch

from pellucid.config import ExportConfig
from pellucid.data.samples import sample_path
from pellucid.export import export, open_exported
from pellucid.export.parity import UNITS, compare, sample_canvases
from pellucid.zoo import make_task, open_model

MODELS = {  # a sample, its pictures, and the least score
    "trees-detect-n": ("trees", "images", 0.05),
    "nuclei-segment-n": ("nuclei", ".", 0.05),
    "quokka-pose-n": ("quokka", "train", 0.0002),
    "nuclei-obb-n": ("nuclei-obb", "images", 0.05),
}
FORMATS = {"onnx": {}, "onnx fp16": {"half": True}, "openvino": {"format": "openvino"}}
BATCHES = (1, 3, 8)
KINDS = {"boxes": "box px", "rboxes": "turned box px", "score": "score", "masks": "mask", "keypoints": "point px"}


def measure(name: str, kind: str, folder: Path) -> list[dict]:
    detector, card = open_model(name)
    task, fused = make_task(card), detector.fuse()
    data, below, conf = MODELS[name]
    settings = {"format": "onnx", **FORMATS[kind]}
    suffix = "_openvino" if settings["format"] == "openvino" else ".onnx"
    done = export(ExportConfig(model=name, out=str(folder / f"{name}{suffix}"), **settings), (detector, card))
    network, _ = open_exported(done.path)
    canvases = sample_canvases(card.imgsz, str(sample_path(data).parent / below))
    rows = []
    for batch in BATCHES:
        gaps = compare(fused, network, task, "e2e", canvases, settings.get("half", False), batch, conf)
        rows.append({"model": name, "format": kind, "batch": batch, "conf": conf, **gaps.to_dict(), "faults": gaps.faults})
    return rows


def table(rows: list[dict]) -> str:
    heads = ["model", "format", "batch", "score from", "rows", "a picture", *KINDS.values()]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        figures = [f"{row['largest'][kind]:.1e}" if kind in row["largest"] else "" for kind in KINDS]
        each = f"{row['compared'] / row['pictures']:.1f}"
        lines.append(
            "| "
            + " | ".join([row["model"], row["format"], *(str(row[key]) for key in ("batch", "conf", "compared")), each, *figures])
            + " |"
        )
    return "\n".join(lines)


def main() -> int:
    assert set(KINDS) == set(UNITS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            for kind in FORMATS if len(sys.argv) < 3 or name in sys.argv[2:] else ():
                rows += measure(name, kind, Path(folder))
                print(table(rows[-len(BATCHES) :]), file=sys.stderr, flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(table(rows) + "\n")
    print(json.dumps({"bench": "parity", "machine": platform.machine(), "torch": torch.__version__, "rows": rows}))
    return int(any(row["faults"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
