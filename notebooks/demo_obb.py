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
# # Oriented boxes: nuclei that lie askew
#
# Boxes that are turned: centre, two sides and an angle.
# Runs as it stands (`python notebooks/demo_obb.py`), or as a notebook by jupytext.
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
DATA = os.environ.get("PELLUCID_DATA", "nuclei-obb")
OUT = Path(os.environ.get("PELLUCID_OUT", "runs/notebooks")) / "obb"
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Look at the labels first
#
# The mark from the centre runs along the long side. A square has no long side: its angle may be off by a quarter turn and still be right.

# %%
dataset = open_dataset(DATA, needs=("boxes", "rboxes"), splits=("train", "val"))
for name, index in dataset.splits.items():
    print(f"{name}: {len(index)} pictures, {len(index.labels)} objects of {', '.join(index.names)}")
label_sheet(dataset.splits["train"], count=8).save(OUT / "labels.jpg")

# %% [markdown]
# ## Train
#
# Turning pictures by any angle (`degrees=180`) is free data here, as nothing has an upper side under a microscope.

# %%
START = "nuclei-obb-n"  # give "obb-n" to begin from random weights, and many more pictures and epochs
settings = {"imgsz": 256, "batch": 2, "nbs": 2, "flipud": 0.5, "degrees": 180.0, "freeze": 17, "share_start": 0.1}
settings |= {"lr0": 0.001, "warmup_bias_lr": 0.001, "warmup_epochs": 1}
settings |= {"epochs": 40, "close_mosaic": 10, "val_every": 10, "cache": "ram"} if FULL else {"epochs": 1}
model = Model(START)
result = model.train(data=DATA, project=str(OUT), name="train", exist_ok=True, workers=0, plots=FULL, **settings)
print(f"best epoch {result.epoch}: {result.metric} {result.value:.3f}, in {result.run_dir}")

# %% [markdown]
# ## Score
#
# The overlap of two turned boxes is computed exactly, as that of polygons.

# %%
scores = model.validate(DATA, project=str(OUT), name="val", exist_ok=True, workers=0, plots=FULL, batch=4)
for path, part in scores.paths.items():
    print(f"{path}: " + ", ".join(f"{name} {value:.3f}" for name, value in part.metrics.items() if "50" in name or name.endswith("/ap")))

# %% [markdown]
# ## Draw
#
# `found.rboxes.xywhr` has centre, sides and angle in radians, positive clockwise on the screen.

# %%
validation = dataset.splits["val"]
results = model.predict([validation.path(row) for row in range(min(4, len(validation)))], conf=0.25)
for found in results:
    picture = found.save(OUT / "found")
    print(picture, len(found))

# %%
angles = results[0].rboxes.xywhr[:, 4]
print(f"angles between {angles.min():.2f} and {angles.max():.2f} rad, always in [-pi/4, 3 pi/4)")

# %% [markdown]
# ## What must hold
#
# On the sample that ships, and there alone: a notebook that runs is not yet one that works.

# %%
LEAST = 0.6
if DATA == "nuclei-obb":
    reached = scores.paths["e2e"].metrics["obb/ap50"]
    assert reached >= LEAST, f"obb/ap50: expected at least {LEAST}, got {reached:.3f}"
    assert sum(map(len, results)) > 0, "expected objects, found none"
