"""CPU time of a detector by stage, in torch and from exported files: `python bench/cpu.py [model] [imgsz] [pictures]`.

Each engine looks at the same pictures in turn, one at a time, so that other work on the machine falls on all alike; figures are medians
in milliseconds. Threads are those of torch: set OMP_NUM_THREADS. Reading a picture from the disk is no part of it; the letterbox is.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from pellucid import Model
from pellucid.data.images import read_image
from pellucid.data.samples import sample_path

STAGES = ("pre", "network", "post")
ENGINES = {"torch": None, "onnxruntime": "onnx", "openvino": "openvino"}


def main(name: str = "trees-detect-n", imgsz: int = 640, rounds: int = 30) -> dict:
    pictures = [read_image(path) for path in sorted((sample_path("trees").parent / "images" / "val").iterdir())]
    times: dict[str, dict[str, list[float]]] = {engine: {stage: [] for stage in STAGES} for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        models = {"torch": Model(name)}
        for engine, form in ENGINES.items():
            if form is not None:
                out = str(Path(folder) / f"x{'_openvino' if form == 'openvino' else '.onnx'}")
                models[engine] = Model(models["torch"].export(form, imgsz=imgsz, out=out).path)
        streams = {
            engine: model.predict([pictures[i % len(pictures)] for i in range(rounds + 3)], stream=True, imgsz=imgsz, device="cpu")
            for engine, model in models.items()
        }
        for number in range(rounds + 3):  # three to warm up
            for engine, stream in streams.items():
                speed = next(stream).speed
                for stage in STAGES if number >= 3 else ():
                    times[engine][stage].append(speed[stage])
    rows = {}
    for engine, stages in times.items():
        medians = {stage: round(statistics.median(values), 2) for stage, values in stages.items()}
        share = [(a + c) / (a + b + c) for a, b, c in zip(*(stages[stage] for stage in STAGES), strict=True)]
        rows[engine] = {**medians, "pre_and_post_share": round(float(np.median(share)), 3)}
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"bench": "cpu", "model": name, "imgsz": imgsz, "pictures": rounds, **machine, "load": os.getloadavg()[0], "engines": rows}


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(main(*words[:1], *(int(word) for word in words[1:3])), indent=1))
