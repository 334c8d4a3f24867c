"""A public build's answers: weights by rule, inputs, outputs, losses; and how its keys map to ours."""

from __future__ import annotations

import json
import re
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import torch

from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.types import Targets

HERE = Path(__file__).parent
LAYOUTS = ("one", "two_images", "crowded", "small", "tiny", "empty_second", "nothing", "near", "nearer")
RULES = (  # ours -> theirs, in order
    (r"^backbone\.layers\.", "model."),
    (r"^neck\.merge4\.", "model.13."),
    (r"^neck\.out3\.", "model.16."),
    (r"^neck\.down3\.", "model.17."),
    (r"^neck\.out4\.", "model.19."),
    (r"^neck\.down4\.", "model.20."),
    (r"^neck\.out5\.", "model.22."),
    (r"^many\.", "model.23."),
    (r"^one\.", "model.23.one2one_"),
    (r"stems\.0\.(\d)\.body\.(\d)", r"cv2.\1.\2"),
    (r"stems\.0\.(\d)\.last\.box", r"cv2.\1.2"),
    (r"stems\.1\.(\d)\.body\.(\d)", r"cv4.\1.\2"),
    (r"stems\.1\.(\d)\.last\.angle", r"cv4.\1.2"),
    (r"stems\.1\.(\d)\.last\.points", r"cv4_kpts.\1"),
    (r"stems\.1\.(\d)\.last\.sigma", r"cv4_sigma.\1"),
    (r"stems\.1\.(\d)\.last\.coefficients", r"cv4.\1.2"),
    (r"^shared\.prototypes\.refine\.", "model.23.proto.feat_refine."),
    (r"^shared\.prototypes\.fuse\.", "model.23.proto.feat_fuse."),
    (r"^shared\.prototypes\.before\.", "model.23.proto.cv1."),
    (r"^shared\.prototypes\.after\.", "model.23.proto.cv2."),
    (r"^shared\.prototypes\.last\.", "model.23.proto.cv3."),
    (r"^shared\.prototypes\.semantic\.", "model.23.proto.semseg."),
    (r"^shared\.prototypes\.", "model.23.proto."),
    (r"^shared\.flow\.scale\.", "model.23.flow_model.s."),
    (r"^shared\.flow\.shift\.", "model.23.flow_model.t."),
    (r"classes\.", "cv3."),
    (r"units\.(\d)\.join\.", r"m.\1.cv3."),
    (r"units\.", "m."),
    (r"\.(split|reduce|left|conv1)\.", ".cv1."),
    (r"\.(join|right|conv2)\.", ".cv2."),
    (r"\.attention\.", ".attn."),
    (r"\.position\.", ".pe."),
    (r"\.project\.", ".proj."),
    (r"\.feed\.", ".ffn."),
)


@cache
def load(name: str) -> tuple[dict, dict]:
    """(json, arrays) of a reference file."""
    with np.load(HERE / f"{name}.npz") as arrays:
        return json.loads((HERE / f"{name}.json").read_text()), dict(arrays)


def their_key(ours: str) -> str:
    for pattern, replacement in RULES:
        ours = re.sub(pattern, replacement, ours)
    return ours


def weight(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A weight by the rule that the reference file states."""
    z = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape)
    if key.endswith("num_batches_tracked"):
        z = np.zeros(shape, dtype=np.int64)
        return torch.as_tensor(z)
    if key.endswith("running_var"):
        z = 0.5 + abs(z) * 0.5
    elif key.endswith("running_mean") or key.endswith(".bn.bias"):
        z = 0.1 * z
    elif key.endswith(".bn.weight"):
        z = 1 + 0.1 * z
    elif "cv2." in key and key.endswith(".2.bias"):
        z = 2.5 + 0.1 * z
    elif "cv3." in key and key.endswith(".2.bias"):
        z = -1.5 + 0.1 * z
    elif len(shape) < 2:
        z = 0.1 * z
    else:
        last = re.search(r"^model\.23\..*(\.2|cv4_\w+\.\d)\.weight$", key) and len(shape) == 4
        z = z * (0.05 if last else 1.4) / np.sqrt(np.prod(shape[1:]))
    return torch.from_numpy(np.asarray(z, dtype=np.float32))


def fill(model: torch.nn.Module) -> dict[str, str]:
    """Give every entry of `model` its weight by rule; returns our name -> their key."""
    state = model.state_dict()
    names = {name: their_key(name) for name in state}
    model.load_state_dict({name: weight(key, tuple(state[name].shape)) for name, key in names.items()})
    return names


@cache
def reference_model(name: str) -> tuple[torch.nn.Module, dict[str, str]]:
    """Our detector with the reference's weights, and the names."""
    settings, _ = load(name)
    task = TASKS[settings["task"]]()
    model = build(settings["scale"], settings["nc"], task.stems, task.shared, task.training_only)
    return model.eval(), fill(model)


def image(seed: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.RandomState(seed).rand(2, 3, 128, 160).astype(np.float32))


def targets(name: str, layout: str) -> Targets:
    """The reference's objects of one layout as padded targets."""
    _, arrays = load(name)
    of_image = arrays[f"loss/{layout}/batch_idx"]
    longest = max(4, *(int((of_image == i).sum()) for i in range(2)))
    labels, valid, boxes = torch.zeros(2, longest, dtype=torch.int64), torch.zeros(2, longest, dtype=torch.bool), torch.zeros(2, longest, 4)
    for i in range(2):
        mine = of_image == i
        n = int(mine.sum())
        x, y, w, h = (torch.from_numpy(arrays[f"loss/{layout}/bboxes"][mine, :4]) * torch.tensor([160.0, 128, 160, 128])).unbind(-1)
        boxes[i, :n] = torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2), -1)
        labels[i, :n] = torch.from_numpy(arrays[f"loss/{layout}/cls"][mine, 0]).long()
        valid[i, :n] = True
    return Targets(labels, valid, boxes)
