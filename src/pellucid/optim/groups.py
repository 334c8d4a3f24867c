"""Which parameters share a learning rate and a decay."""

from __future__ import annotations

from torch import nn

CLASS_STEM_RATE = 3.0  # the class stems of both branches learn at three times the rate of everything else


def parameter_groups(model: nn.Module, lr: float, weight_decay: float) -> list[dict]:
    """Groups of trainable parameters, each with lr, weight_decay, `rate` (its factor on lr) and `bias` (whether bias warm-up applies).

    Weights with >= 2 dimensions decay; BatchNorm weights and all biases do not.
    """
    groups: dict[tuple, dict] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = CLASS_STEM_RATE if ".classes." in name else 1.0
        bias, matrix = name.endswith("bias"), parameter.dim() > 1
        group = groups.setdefault(
            (rate, bias, matrix),
            {"params": [], "lr": lr * rate, "weight_decay": weight_decay if matrix else 0.0, "rate": rate, "bias": bias},
        )
        group["params"].append(parameter)
    return list(groups.values())
