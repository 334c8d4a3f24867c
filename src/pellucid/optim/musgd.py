"""MuSGD: a weighted sum of a Muon step and an SGD step for matrices, SGD for vectors (arXiv 2606.03748, 3.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .flat import Flat
from .orthogonal import MatrixBatches


class MuSGD(torch.optim.Optimizer):
    """W <- W - lr (muon NS5(u) + sgd u'), v <- v - lr u; u is the Nesterov look-ahead of the gradient, u' that of gradient + decay W.

    A group holds either vectors or weights with >= 2 dimensions. Learning rate, momentum and decay are device tensors, so that a schedule
    fills them in place. Where `found_inf`, a () float tensor as the fused torch optimizers take it, is 1, nothing changes.
    """

    def __init__(
        self, params: Iterable, lr: float = 0.01, momentum: float = 0.937, weight_decay: float = 5e-4, muon: float = 0.2, sgd: float = 1.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "muon": muon, "sgd": sgd})
        self.found_inf: Tensor | None = None
        self._groups = [_GroupState(group, self.state) for group in self.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> object:
        """One update of all parameters; a parameter without a gradient counts as one with gradient 0."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, state in zip(self.param_groups, self._groups, strict=True):
            state.step(group, self.found_inf)
        return loss

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore; the loaded moments are copied into this optimizer's own vectors."""
        super().load_state_dict(state_dict)
        for group, state in zip(self.param_groups, self._groups, strict=True):
            state.adopt(group, self.state)


class _GroupState:
    """Moments of one group as vectors, and the matrices in them."""

    def __init__(self, group: dict, state: dict) -> None:
        self.params: list[Tensor] = group["params"]
        dimensions = {p.dim() > 1 for p in self.params}
        if len(dimensions) > 1:
            raise ValueError("a MuSGD group holds either vectors or weights with >= 2 dimensions; split it, as parameter_groups() does")
        self.matrices = MatrixBatches(self.params) if dimensions.pop() else None
        names = ("sgd",) if self.matrices is None else ("sgd", "muon")
        self.moments = {name: Flat(self.params) for name in names}
        self.gradient, self.weight = Flat(self.params), Flat(self.params)
        self._place(group)
        self._publish(state)

    def step(self, group: dict, found_inf: Tensor | None) -> None:
        rate, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        if found_inf is not None:
            skip = found_inf > 0
            rate, momentum, decay = torch.where(skip, 0.0, rate), torch.where(skip, 1.0, momentum), torch.where(skip, 0.0, decay)
        gradient = self.gradient.fill([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        if self.matrices is None:
            update = self._look_ahead("sgd", gradient, momentum)
        else:
            decayed = gradient + decay * self.weight.fill(self.params)
            update = group["sgd"] * self._look_ahead("sgd", decayed, momentum)
            update += group["muon"] * self.matrices(self._look_ahead("muon", gradient, momentum))
        self.gradient.vector.copy_(update * rate)
        torch._foreach_sub_(self.params, self.gradient.views)

    def _look_ahead(self, name: str, gradient: Tensor, momentum: Tensor) -> Tensor:
        """m <- mu m + g, then g + mu m."""
        moment = self.moments[name].vector
        moment.mul_(momentum).add_(gradient)
        return gradient + momentum * moment

    def adopt(self, group: dict, state: dict) -> None:
        self._place(group)
        for name, moment in self.moments.items():
            moment.fill([state[p][name] for p in self.params])
        self._publish(state)

    def _place(self, group: dict) -> None:
        for name in ("lr", "momentum", "weight_decay"):
            group[name] = torch.as_tensor(group[name], dtype=torch.float32).to(self.params[0].device)

    def _publish(self, state: dict) -> None:
        for position, p in enumerate(self.params):
            state[p] = {name: moment.views[position] for name, moment in self.moments.items()}
