"""Three steps of a public build's MuSGD on stated weights and gradients."""

import zlib

import numpy as np
import pytest
import torch

from pellucid.optim.groups import parameter_groups
from pellucid.optim.musgd import MuSGD

from .oracle import load, reference_model


def gradient(step: int, key: str, shape: tuple[int, ...]) -> torch.Tensor:
    z = np.random.RandomState(zlib.crc32(f"grad{step}/{key}".encode())).standard_normal(shape) * 0.01
    return torch.from_numpy(z.astype(np.float32))


def test_three_steps():
    settings, arrays = load("musgd")
    model, names = reference_model("detect-n")
    params = {names[n]: p.detach().clone() for n, p in model.named_parameters()}
    by_id = {id(p): key for p, key in zip(model.parameters(), params, strict=True)}
    groups = parameter_groups(model, settings["lr"], settings["decay"])
    for group in groups:
        group["params"] = [params[by_id[id(p)]] for p in group["params"]]
    optimizer = MuSGD(groups, lr=settings["lr"], momentum=settings["momentum"], weight_decay=settings["decay"])
    checked = 0
    for step in range(3):
        before = {key: p.clone() for key, p in params.items()}
        for key, p in params.items():
            p.grad = gradient(step, key, tuple(p.shape))
        optimizer.step()
        change = {key: params[key] - before[key] for key in params}
        for key, norm in settings["delta_norms"][step].items():
            assert change[key].norm().item() == pytest.approx(norm, rel=2e-2 if params[key].dim() > 1 else 1e-4), (step, key)
        for key in (key for key in arrays if key.startswith(f"step{step}/")):
            name = key.split("/")[1]
            theirs = torch.from_numpy(arrays[key])
            error = (change[name] - theirs).norm() / theirs.norm()
            assert error < (2e-2 if theirs.dim() > 1 else 1e-4), (key, error)
            checked += 1
    assert checked == 27
