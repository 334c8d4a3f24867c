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
# # What "the same numbers" means
#
# A change of a kernel, a precision or a device changes the order of roundings. How much may a gradient move before something is wrong?
# Here is how that is asked in this project, on real pictures of all four tasks.
# Runs as it stands (`python notebooks/development_gates.py`), or as a notebook by jupytext.
#
# - `PELLUCID_DATA` names another data set for the task `PELLUCID_TASK` (detect): a folder, a YAML, a sample that ships.
# - `PELLUCID_FULL=1` takes all tasks, 20 draws and larger pictures; a GPU is used if there is one.
# - `PELLUCID_OUT` is where the picture goes.

# %%
import os
import sys
from pathlib import Path

import torch

from pellucid.augment.apply import apply
from pellucid.config import TrainConfig
from pellucid.models.attention import attention_weights
from pellucid.train.charts import line_chart
from pellucid.train.criterion import combine
from pellucid.train.run import TrainingData, loading_of, open_all
from pellucid.train.step import TrainStep
from pellucid.zoo import make_task

FULL = os.environ.get("PELLUCID_FULL") == "1"
OUT = Path(os.environ.get("PELLUCID_OUT", "runs/notebooks")) / "gates"
OUT.mkdir(parents=True, exist_ok=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DRAWS, SIZE, STEPS = (20, 256, 100) if FULL else (3, 128, 3)
SETS = {"detect": "trees", "segment": "nuclei", "pose": "quokka", "obb": "nuclei-obb"}
if "PELLUCID_DATA" in os.environ:
    SETS = {os.environ.get("PELLUCID_TASK", "detect"): os.environ["PELLUCID_DATA"]}
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # TF32 alone would move more than all that follows

# %% [markdown]
# ## Frozen figures
#
# What can be derived or counted is frozen: parameter counts, an assignment done by hand, schedules, losses of a fixed batch in float64.
# The files are sealed: `make reseal` writes one anew, and asks for the reason.

# %%
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))
from make import GOLDENS, broken_seals, differences, load  # noqa: E402

assert not broken_seals()
for name in GOLDENS if FULL else ("assignment", "schedule", "newton_schulz"):
    assert not differences(GOLDENS[name].make(), load(name)), name
    print(f"{name}: as frozen, within {GOLDENS[name].tolerance}")

# %% [markdown]
# ## Why some places run in full precision
#
# float16 ends at 65,504. Sums over the channels of large activations pass it before they are scaled down, and a softmax of infinities is
# not a number. The attention of the network therefore computes its logits in float32, whatever surrounds it.

# %%
q, k = (torch.randn(1, 1, 64, 400, generator=torch.Generator().manual_seed(seed)) * 200 for seed in (0, 1))
logits = q.mT @ k
print(f"largest logit {logits.max():.0f}; not finite in float16: {(~torch.isfinite(logits.half())).sum()} of {logits.numel()}")
assert logits.max() > 65_504
assert not torch.isfinite(logits.half()).all()
with torch.autocast("cpu", torch.float16):
    weights = attention_weights(q.half(), k.half())
print(f"our weights: all finite: {bool(torch.isfinite(weights).all())}, rows sum to {weights.float().sum(-1).mean():.4f}")
assert torch.isfinite(weights).all()

# %% [markdown]
# ## The noise floor
#
# 1. The same step twice, on one device, must give the same bits. If it does not, nothing else can be compared.
# 2. Then the gradient that enters the network is moved by one rounding, a few times at random. How far the parameters' gradients move
#    is the floor: what no rearranged arithmetic can be better than.
# 3. A bound is 2.5 times the largest draw. It is measured for each case, never guessed.


# %%
def real_step(task_name: str, data: str, precision: str = "32"):
    """A training step of a fresh model, and a batch of real pictures on the device."""
    config = TrainConfig(model=f"{task_name}-n", data=data, batch=4, imgsz=SIZE, accumulate=1, precision=precision, workers=0)
    dataset, detector, card = open_all(config)
    packed = next(iter(TrainingData(dataset, make_task(card), **loading_of(config)).train_dataloader()))
    step = TrainStep(detector.to(DEVICE), make_task(card), config, card.nc, precision, STEPS)
    return step, apply(packed.to(DEVICE))


def gradient(step: TrainStep, batch, ulp: float = 0.0, seed: int = 0) -> torch.Tensor:
    """The gradient of all parameters as one vector; `ulp` multiplies what enters the network's backward by 1 + ulp x U(-1, 1)."""
    output = step.detector(batch.images)
    draws = torch.Generator(DEVICE).manual_seed(seed)
    heads = [*output.many.outputs.values(), *output.one.outputs.values()]
    for value in heads if ulp else ():
        value.register_hook(lambda g: g * (1 + ulp * (2 * torch.rand(g.shape, generator=draws, device=DEVICE) - 1)))
    many, one = step.criterion(output, batch.targets)
    step.detector.zero_grad()
    combine(many, one, step.share, len(batch)).backward()
    return torch.cat([p.grad.flatten() for p in step.detector.parameters() if p.grad is not None])


curves = {}
for name, data in SETS.items():
    step, batch = real_step(name, data)
    assert batch.targets.valid.any(), "expected objects in the batch, found none"
    native = gradient(step, batch)
    again = gradient(step, batch)
    same = torch.equal(native, again)
    moved = [gradient(step, batch, torch.finfo(torch.float32).eps, seed) for seed in range(DRAWS)]
    floor = sorted(((other - native).norm() / native.norm()).item() for other in moved)
    print(f"{name}: twice the same bits: {same}; floor {floor[0]:.1e} ... {floor[-1]:.1e}, bound {2.5 * floor[-1]:.1e}")
    assert 0 < floor[-1] < 1e-3
    assert same or DEVICE == "cuda", "expected the same bits twice on a CPU"
    curves[name] = (list(range(1, DRAWS + 1)), [value / floor[-1] for value in floor])
line_chart(curves, "draws of the noise floor, each over the largest", "draw, sorted", (0, 1)).save(OUT / "floor.png")

# %% [markdown]
# ## A defect against the floor
#
# Let the gain of the class loss be a thousandth too high: the loss looks the same, but the gradient is far above the bound. That is
# what a measured bound is for.

# %%
step, batch = real_step(*next(iter(SETS.items())))
native = gradient(step, batch)
floor = max(((gradient(step, batch, 1.2e-7, seed) - native).norm() / native.norm()).item() for seed in range(DRAWS))
step.criterion.cls_gain *= 1.001
defect = ((gradient(step, batch) - native).norm() / native.norm()).item()
print(f"defect {defect:.1e}, {defect / (2.5 * floor):.0f} times the bound")
assert defect > 2.5 * floor

# %% [markdown]
# ## Training goes down, and hardly a step is lost
#
# On a GPU in float16, elsewhere in float32: the loss falls on a batch seen again and again. At most two steps may be skipped
# while the loss scale finds its place.

# %%
for name, data in SETS.items():
    step, batch = real_step(name, data, "16" if DEVICE == "cuda" else "32")
    losses = []
    for _ in range(STEPS):
        step.clear_losses()
        step(batch)
        losses.append(sum(value.item() for value in step.losses().values()))
    state = f"{int(step.skipped)} skipped, scale {step.scaler.scale.item():.0f}"
    print(f"{name}: loss {losses[0]:.2f} -> {losses[-1]:.2f} in {STEPS} steps, {state}")
    assert torch.isfinite(torch.tensor(losses)).all()
    assert step.skipped <= 2
    assert losses[-1] < losses[0]
