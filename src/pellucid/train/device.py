"""Which device computes, and in which arithmetic."""

from __future__ import annotations

import torch

from ..errors import UsageError


def pick_device(text: str) -> torch.device:
    """The device of `auto`, `cpu` or the number of a GPU; UsageError where there is none, or where several are named."""
    text = str(text).strip().removeprefix("cuda:")
    if text == "cpu":
        return torch.device("cpu")
    if text == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if "," in text:
        raise UsageError(f"device: expected one device, got {text!r}; several can train, one scores and predicts: name one of them")
    if not text.isdigit():
        raise UsageError(f"device: expected auto, cpu or the number of a GPU, got {text!r}; try device=auto")
    count = torch.cuda.device_count()
    if int(text) >= count:
        raise UsageError(
            f"device: expected the number of a GPU, got {text}, but torch sees {count or 'no'} GPU{'s' * (count != 1)}; try device=auto"
        )
    return torch.device("cuda", int(text))


def pick_devices(text: str) -> list[torch.device]:
    """The devices of names with commas between them, a process for each; UsageError where a GPU is named twice or beside the CPU."""
    devices = [pick_device(name) for name in str(text).split(",")]
    gpus = {device for device in devices if device.type == "cuda"}
    if gpus and len(gpus) < len(devices):
        raise UsageError(f"device: expected different GPUs, got {text!r}; name each of them once, as in device=0,1")
    return devices


def pick_precision(text: str, device: torch.device) -> str:
    """`32`, `16` or `bf16` for `auto`; UsageError where the device cannot do what is asked for."""
    if device.type == "cpu":
        if text == "16":
            raise UsageError("precision: expected 32, bf16 or auto on a CPU, got 16, which needs a GPU; leave precision out")
        return "32" if text == "auto" else text
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if text == "bf16" and not has_bf16:
        raise UsageError("precision: expected a GPU with bfloat16, got one without; take precision=16")
    return ("bf16" if has_bf16 else "16") if text == "auto" else text
