"""MuSGD: a weighted sum of a Muon step and an SGD step for matrices, SGD for vectors (arXiv 2606.03748, 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .orthogonal import orthogonalise_all


class MuSGD(torch.optim.Optimizer):
    """W <- W - lr (muon NS5(u) + sgd u'), v <- v - lr u; u is the Nesterov look-ahead of the gradient, u' that of gradient + decay W.

    Learning rate, momentum and decay are device tensors, so that a schedule can fill them in place and a captured step can read them.
    Where `found_inf` (a () float tensor, as the fused torch optimizers take it) is 1, nothing changes.
    """

    def __init__(
        self, params: Iterable, lr: float = 0.01, momentum: float = 0.937, weight_decay: float = 5e-4, muon: float = 0.2, sgd: float = 1.0
    ) -> None:
        """Groups may set lr, momentum, weight_decay, muon and sgd of their own; weight_decay acts on weights with >= 2 dimensions only."""
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "muon": muon, "sgd": sgd})
        self.found_inf: Tensor | None = None
        for group in self.param_groups:
            device = group["params"][0].device
            for name in ("lr", "momentum", "weight_decay"):
                group[name] = torch.as_tensor(group[name], dtype=torch.float32).to(device)
            for p in group["params"]:
                self.state[p]["sgd"] = torch.zeros_like(p)
                if p.dim() > 1:
                    self.state[p]["muon"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """One update of every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("MuSGD takes no closure; compute the gradients first, then call step()")
        for group in self.param_groups:
            active = [p for p in group["params"] if p.grad is not None]
            self._vectors([p for p in active if p.dim() < 2], group)
            self._matrices([p for p in active if p.dim() >= 2], group)

    def _matrices(self, params: list[Tensor], group: dict) -> None:
        if not params:
            return
        grads = [p.grad for p in params]
        decay = self._unless_skipped(group["weight_decay"], 0.0)
        update = self._look_ahead("sgd", params, torch._foreach_add(grads, torch._foreach_mul(params, decay)), group)
        torch._foreach_mul_(update, group["sgd"])
        turned = orthogonalise_all(self._look_ahead("muon", params, grads, group))
        torch._foreach_add_(update, turned, alpha=group["muon"])
        self._apply(params, update, group)

    def _vectors(self, params: list[Tensor], group: dict) -> None:
        if params:
            self._apply(params, self._look_ahead("sgd", params, [p.grad for p in params], group), group)

    def _look_ahead(self, buffer: str, params: list[Tensor], grads: list[Tensor], group: dict) -> list[Tensor]:
        """m <- mu m + g, then g + mu m."""
        moments = [self.state[p][buffer] for p in params]
        momentum = self._unless_skipped(group["momentum"], 1.0)
        torch._foreach_mul_(moments, momentum)
        torch._foreach_add_(moments, grads)
        return torch._foreach_add(grads, torch._foreach_mul(moments, momentum))

    def _apply(self, params: list[Tensor], update: list[Tensor], group: dict) -> None:
        torch._foreach_mul_(update, self._unless_skipped(group["lr"], 0.0))
        torch._foreach_sub_(params, update)

    def _unless_skipped(self, value: Tensor, otherwise: float) -> Tensor:
        return value if self.found_inf is None else torch.where(self.found_inf > 0, otherwise, value)
