"""Steps of several heads' optimizers at once, as torch's fused optimizers compute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tuner.train.heads.head import Head

ADAM, SGD = "adam", "sgd"  # kinds of optimizers whose heads can take steps together


def kind_of(head: Head) -> str:
    """The kind of a head's optimizer: ADAM, SGD or LBFGS."""
    optimizer: str = head.chosen["optimizer"]
    return ADAM if optimizer == "adamw" else optimizer


class Update:
    """Takes an epoch's steps with M heads of one kind of optimizer.

    `rates` [S, M] float64 on the CPU are the learning rates; `weights` is how many parameters decay, the first ones.
    """

    names: tuple[str, ...]

    def __init__(self, heads: Sequence[Head], rates: Tensor, weights: int) -> None:
        self._heads, self._weights, self._like = heads, weights, heads[0].live
        self._state = {name: torch.stack([self._of(head, name) for head in heads]) for name in self.names}
        self._rates = rates
        decay = self._column(head.groups[0]["weight_decay"] for head in heads)
        within = torch.tensor([[head.chosen["optimizer"] != "adamw"] for head in heads])
        coupled, apart = decay * within, decay * ~within
        self._coupled = self._on_device(coupled) if bool(coupled.any()) else None
        self._shrinking = self._on_device(1 - rates[:, :, None] * apart) if bool(apart.any()) else None

    def __call__(self, live: Tensor, gradients: Tensor, step: int) -> None:
        """Change parameters [M, P] by their gradients, which are overwritten, in this step of the epoch."""
        if self._shrinking is not None:
            live[:, : self._weights].mul_(self._shrinking[step])
        if self._coupled is not None:
            gradients[:, : self._weights].addcmul_(live[:, : self._weights], self._coupled)
        self._move(live, gradients, step)

    def keep(self) -> None:
        """Give the heads what their optimizers keep."""
        for place, head in enumerate(self._heads):
            head.steps += len(self._rates)
            for name in self.names:
                head.state[name] = self._state[name][place].clone()

    def _move(self, live: Tensor, gradients: Tensor, step: int) -> None:
        raise NotImplementedError

    def _of(self, head: Head, name: str) -> Tensor:
        return head.state.get(name, torch.zeros_like(head.live))

    @staticmethod
    def _column(values: Iterable[float]) -> Tensor:
        """[M, 1] float64."""
        return torch.tensor([[float(value)] for value in values], dtype=torch.float64)

    def _on_device(self, values: Tensor) -> Tensor:
        return values.to(self._like)


class AdamUpdate(Update):
    """Adam, and AdamW, whose weights decay apart from the gradient."""

    names = ("exp_avg", "exp_avg_sq")

    def __init__(self, heads: Sequence[Head], rates: Tensor, weights: int) -> None:
        super().__init__(heads, rates, weights)
        (first, second), eps = heads[0].groups[0]["betas"], heads[0].groups[0]["eps"]
        self._betas = first, second
        counts = torch.arange(1, len(rates) + 1)[:, None] + torch.tensor([head.steps for head in heads])  # [S, M]
        spread = (1 - second ** counts.double()).sqrt()
        self._sizes = self._on_device((-rates * spread / (1 - first ** counts.double()))[:, :, None])
        self._eps = self._on_device((eps * spread)[:, :, None])
        self._scratch = torch.empty_like(self._state["exp_avg"])

    def _move(self, live: Tensor, gradients: Tensor, step: int) -> None:
        """As torch, with both sides of the quotient times the root of the second bias correction."""
        first, second = self._betas
        mean, square = self._state["exp_avg"], self._state["exp_avg_sq"]
        mean.lerp_(gradients, 1 - first)
        square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
        torch.sqrt(square, out=self._scratch)
        quotient = torch.div(mean, self._scratch.add_(self._eps[step]), out=self._scratch)
        live.addcmul_(quotient, self._sizes[step])


class SgdUpdate(Update):
    """Stochastic gradient descent, with momentum or Nesterov's."""

    names = ("momentum_buffer",)

    def __init__(self, heads: Sequence[Head], rates: Tensor, weights: int) -> None:
        super().__init__(heads, rates, weights)
        groups = [head.groups[0] for head in heads]
        self._momentum = self._on_device(self._column(group["momentum"] for group in groups))
        ahead = self._column(group["nesterov"] for group in groups)
        self._ahead = self._on_device(ahead) if bool(ahead.any()) else None
        self._sizes = self._on_device(-rates[:, :, None])

    def _move(self, live: Tensor, gradients: Tensor, step: int) -> None:
        buffer = self._state["momentum_buffer"].mul_(self._momentum).add_(gradients)
        if self._ahead is None:
            live.addcmul_(buffer, self._sizes[step])
            return
        with_momentum = torch.where(self._ahead > 0, self._momentum, 1.0)
        live.addcmul_(gradients.mul_(self._ahead).addcmul_(buffer, with_momentum), self._sizes[step])

    def keep(self) -> None:
        """See `Update.keep`; torch keeps nothing without momentum."""
        super().keep()
        for head in self._heads:
            if not head.groups[0]["momentum"]:
                head.state = {}


UPDATES: dict[str, type[Update]] = {ADAM: AdamUpdate, SGD: SgdUpdate}
