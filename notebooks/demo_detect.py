# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Detection: trees from above
#
# Boxes around objects, from labels to pictures, in five steps.
# Runs as it stands (`python notebooks/demo_detect.py`), or as a notebook by jupytext.
#
# - `PELLUCID_DATA` names another data set: a folder, a YAML, a sample that ships.
# - `PELLUCID_FULL=1` trains for as long as it takes to get better; without it, for a moment.
# - `PELLUCID_OUT` is where pictures and runs go.

# %%
import os
from pathlib import Path

from pellucid import Model, open_dataset
from pellucid.results.preview import label_sheet

FULL = os.environ.get("PELLUCID_FULL") == "1"
DATA = os.environ.get("PELLUCID_DATA", "trees")
OUT = Path(os.environ.get("PELLUCID_OUT", "runs/notebooks")) / "detect"
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Look at the labels first
#
# Most of what goes wrong in training can be seen before it: boxes beside their object, objects without a box.

# %%
dataset = open_dataset(DATA, needs=("boxes",), splits=("train", "val"))
for name, index in dataset.splits.items():
    print(f"{name}: {len(index)} pictures, {len(index.labels)} objects of {', '.join(index.names)}")
label_sheet(dataset.splits["train"], count=8).save(OUT / "labels.jpg")

# %% [markdown]
# ## Train
#
# It starts from shipped weights. Backbone and neck are frozen (`freeze=17`): only the heads learn from these few pictures.

# %%
START = "trees-detect-n"  # give "detect-n" to begin from random weights, and many more pictures and epochs
settings = {"imgsz": 416, "batch": 8, "nbs": 8, "flipud": 0.5, "freeze": 17, "share_start": 0.1}
settings |= {"lr0": 0.001, "warmup_bias_lr": 0.001, "warmup_epochs": 1}
settings |= {"epochs": 20, "close_mosaic": 5, "val_every": 5, "cache": "ram"} if FULL else {"epochs": 1, "imgsz": 320, "fraction": 0.5}
model = Model(START)
result = model.train(data=DATA, project=str(OUT), name="train", exist_ok=True, workers=0, plots=FULL, **settings)
print(f"best epoch {result.epoch}: {result.metric} {result.value:.3f}, in {result.run_dir}")

# %% [markdown]
# ## Score
#
# Two ways out of one network: `e2e` takes the best answers of a branch that was taught to give each object one answer; `nms` takes the
# branch that gives several, and suppresses those that overlap. Both are scored by COCO rules.

# %%
scores = model.validate(DATA, project=str(OUT), name="val", exist_ok=True, workers=0, plots=FULL, batch=4)
for path, part in scores.paths.items():
    print(f"{path}: " + ", ".join(f"{name} {value:.3f}" for name, value in part.metrics.items() if "50" in name or name.endswith("/ap")))

# %% [markdown]
# ## Draw
#
# `found.boxes.xyxy`, `.conf` and `.cls` are tensors in pixels of the picture.

# %%
validation = dataset.splits["val"]
results = model.predict([validation.path(row) for row in range(min(4, len(validation)))], conf=0.25)
for found in results:
    picture = found.save(OUT / "found")
    print(picture, len(found), found.boxes.conf[:3].tolist())

# %% [markdown]
# ## What must hold
#
# On the sample that ships, and there alone: a notebook that runs is not yet one that works.

# %%
LEAST = 0.35 if FULL else 0.3
if DATA == "trees":
    reached = scores.paths["e2e"].metrics["box/ap50"]
    assert reached >= LEAST, f"box/ap50: expected at least {LEAST}, got {reached:.3f}"
    assert sum(map(len, results)) > 0, "expected objects, found none"
