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
    fills them in place. Where `found_inf`, a () float tensor, is 1, nothing changes if the gradient is 0, as `FlatGradients.finish` then
    leaves it; unlike the fused torch optimizers, this one does not look past another gradient: empty it first.
    """

    def __init__(
        self, params: Iterable, lr: float = 0.01, momentum: float = 0.937, weight_decay: float = 5e-4, muon: float = 0.2, sgd: float = 1.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "muon": muon, "sgd": sgd})
        self.found_inf: Tensor | None = None
        self._groups = [_GroupState(group, self.state) for group in self.param_groups]
        matrices = [p for group in self._groups if group.is_matrix for p in group.params]
        self._batches = MatrixBatches(matrices) if matrices else None

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> object:  # type: ignore[override]
        """One update of all parameters; a parameter without a gradient counts as one with gradient 0."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pairs = list(zip(self.param_groups, self._groups, strict=True))
        rates = [_effective(group, self.found_inf) for group in self.param_groups]
        ahead = [state.look_ahead(*rate) for (_, state), rate in zip(pairs, rates, strict=True)]
        turned = self._orthogonal([state.muon_ahead for _, state in pairs if state.is_matrix])
        for (group, state), (lr, _, _), update in zip(pairs, rates, ahead, strict=True):
            if state.is_matrix:
                update = group["sgd"] * update + group["muon"] * turned.pop(0)
            state.apply(update * lr)
        return loss

    def _orthogonal(self, vectors: list[Tensor]) -> list[Tensor]:
        """All matrices of all groups in one pass."""
        if self._batches is None:
            return []
        return list(self._batches(torch.cat(vectors)).split([len(vector) for vector in vectors]))

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore; the loaded moments are copied into this optimizer's own vectors."""
        super().load_state_dict(state_dict)
        for group, state in zip(self.param_groups, self._groups, strict=True):
            state.adopt(group, self.state)


class _GroupState:
    """Moments of one group as vectors."""

    def __init__(self, group: dict, state: dict) -> None:
        self.params: list[Tensor] = group["params"]
        dimensions = {p.dim() > 1 for p in self.params}
        if len(dimensions) > 1:
            raise ValueError("a MuSGD group holds either vectors or weights with >= 2 dimensions; split it, as parameter_groups() does")
        self.is_matrix = dimensions.pop()
        self.moments = {name: Flat(self.params) for name in (("sgd", "muon") if self.is_matrix else ("sgd",))}
        self.gradient, self.weight = Flat(self.params), Flat(self.params)
        self.muon_ahead = self.gradient.vector
        self._place(group)
        self._publish(state)

    def look_ahead(self, lr: Tensor, momentum: Tensor, decay: Tensor) -> Tensor:
        """m <- mu m + g, then g + mu m, with decay; of a matrix also `muon_ahead`, without."""
        gradient = self.gradient.fill([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        if not self.is_matrix:
            return self._advance("sgd", gradient, momentum)
        self.muon_ahead = self._advance("muon", gradient, momentum)
        return self._advance("sgd", gradient + decay * self.weight.fill(self.params), momentum)

    def _advance(self, name: str, gradient: Tensor, momentum: Tensor) -> Tensor:
        moment = self.moments[name].vector
        moment.mul_(momentum).add_(gradient)
        return gradient + momentum * moment

    def apply(self, update: Tensor) -> None:
        """Subtract a vector from the parameters."""
        self.gradient.vector.copy_(update)
        torch._foreach_sub_(self.params, self.gradient.views)

    def adopt(self, group: dict, state: dict) -> None:
        """Take over loaded moments."""
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


def _effective(group: dict, found_inf: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(lr, momentum, decay), as 0, 1, 0 where the step is skipped."""
    lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
    if found_inf is None:
        return lr, momentum, decay
    skip = found_inf > 0
    return torch.where(skip, 0.0, lr), torch.where(skip, 1.0, momentum), torch.where(skip, 0.0, decay)
