"""Put the best weights of a run among those that ship, as float16, with a card: `python recipes/ship.py RUN NAME`.

The figures of the card are those of the file that was written, on the validation pictures of the sample that it is for.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from pellucid import Model
from pellucid.zoo import load_weights, save_weights
from pellucid.zoo.weights import HERE

CARD = """# {name}

One class, `{class_name}`, {what}; {scale} scale, float16, {imgsz} px.

Trained by `recipes/{recipe}.yaml` {data}. On {count}:
{metric} AP50 {e2e50:.3f}, AP {e2e:.3f} end to end; {nms50:.3f}, {nms:.3f} with suppression
(`pellucid val model={name} data={sample} imgsz={size}`). {limits}

Licence: Apache-2.0, with the attributions of NOTICE.
"""
CONTEST = """on the training pictures of the 2018 Data Science Bowl, stage 1 (CC0), without the one that the sample is a part of, and on
the training tiles of the sample (BSD-3: stardist), never on its validation tiles; the epoch that was kept was chosen by the contest's
validation pictures"""
ABOUT = {  # name: sample, size at which it is scored, and the words of the card
    "nuclei-segment-n": {
        "sample": "nuclei",
        "size": "256",
        "what": "under a microscope, with its outline",
        "data": CONTEST,
        "count": "the two validation tiles (66 nuclei)",
        "limits": "It knows fluorescence and a few stains; little else was ever shown to it.",
    },
    "nuclei-obb-n": {
        "sample": "nuclei-obb",
        "size": "256",
        "what": "under a microscope, as an oriented box",
        "data": CONTEST,
        "count": "the two validation tiles (66 nuclei)",
        "limits": "It knows fluorescence and a few stains; for a round nucleus the angle means little.",
    },
    "quokka-pose-n": {
        "sample": "quokka",
        "size": "320",
        "what": "with 7 points",
        "data": """on 1,500 pictures that `recipes/quokka.py` made before the photos of the sample's training split (the quokka: MIT,
imgaug; the photos: CC0 and public domain), never before those of its validation split; the epoch that was kept was chosen by 100 more
pictures before the training photos""",
        "count": "the 24 validation pictures (26 quokkas, other photos behind them)",
        "limits": "It knows one animal in one attitude: it is for the demo, not for quokkas in the field.",
    },
}


def main(run: str, name: str) -> None:
    model, card = load_weights(Path(run) / "weights" / "best.safetensors")
    path = HERE / f"{name}.safetensors"
    about = ABOUT[name]
    settings = {**card.settings, "data": about["sample"], "project": "runs", "resume": ""}  # no path of the machine that trained
    save_weights(path, model.state_dict(), replace(card, settings=settings), half=True)
    path.chmod(0o644)
    with tempfile.TemporaryDirectory() as folder:
        scores = Model(name).validate(about["sample"], imgsz=int(about["size"]), plots=False, project=folder)
    metric = next(iter(scores.paths["e2e"].metrics)).split("/")[0]
    figures = {f"{way}{key}": scores.paths[way].metrics[f"{metric}/ap{key}"] for way in ("e2e", "nms") for key in ("", "50")}
    head = {"name": name, "recipe": name.rpartition("-")[0], "class_name": card.names[0], "scale": card.scale, "imgsz": card.imgsz}
    path.with_suffix(".md").write_text(CARD.format(**head, **about, **figures, metric=metric))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {metric} {figures}")


if __name__ == "__main__":
    main(*sys.argv[1:])
