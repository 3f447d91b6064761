"""Steps: SGD, momentum and Adam for many devices at once, each with a step count of its own.

`torch.optim` keeps one count per tensor; here every device has taken its own number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from veilrec.base.limits.bounds import Rate
from veilrec.base.params import Params, part_of
from veilrec.base.rows import along

__all__ = ["Stepper", "every_rate", "rate_of"]

Rates = Rate | Mapping[str, Rate]


def rate_of(rates: Rates, name: str) -> float:
    """The learning rate of a weight: by its part, else by ``default``, else one for all.

    >>> rate_of({"item": 0.5, "default": 0.1}, "item"), rate_of({"item": 0.5, "default": 0.1}, "mlp1.weight")
    (0.5, 0.1)
    """
    if isinstance(rates, Mapping):
        return float(rates.get(part_of(name), rates.get("default", 0.0)))
    return float(rates)


def every_rate(rates: Rates) -> list[float]:
    """All learning rates that are named, of any part."""
    return list(rates.values()) if isinstance(rates, Mapping) else [rates]


@dataclass(frozen=True)
class Stepper:
    """An optimiser, for tensors with the client axis first.

    Two devices take one step of SGD, each along its own gradient:

    >>> import torch
    >>> weights, slopes = {"item": torch.zeros(2, 2)}, {"item": torch.tensor([[1.0, 0.0], [0.0, 2.0]])}
    >>> Stepper("sgd", lr=0.5).step(weights, slopes, state={})
    >>> weights["item"]
    tensor([[-0.5000,  0.0000],
            [ 0.0000, -1.0000]])
    """

    kind: Literal["sgd", "adam"] = "sgd"
    lr: Rates = 0.1
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def fresh(self, params: Params) -> Params:
        """The state before the first step, beside each weight: ``m/…``, ``v/…`` and the count ``t/…``."""
        state: Params = {}
        for name, weight in params.items():
            if self.kind == "adam" or self.momentum:
                state[f"m/{name}"] = weight.new_zeros(weight.shape)
            if self.kind == "adam":
                state[f"v/{name}"] = weight.new_zeros(weight.shape)
                state[f"t/{name}"] = weight.new_zeros(len(weight))
        return state

    @property
    def plain(self) -> bool:
        """True if a row whose gradient is zero does not move."""
        return self.kind == "sgd" and not self.momentum

    def step(
        self, params: Params, gradients: Params, state: Params, places: Mapping[str, Tensor] | None = None
    ) -> None:
        """One step, in place, of the first clients: as many as there are gradients.

        A plain step may be given only some rows of a table: `places` says which, ``[k, u]`` by name.
        """
        for name, gradient in gradients.items():
            lr, active = rate_of(self.lr, name), len(gradient)
            weight = params[name][:active]
            if places and name in places:
                index = along(places[name], gradient).expand_as(gradient)
                weight.scatter_add_(1, index, gradient * -lr)
                continue
            if self.kind == "adam":
                m, v, t = (state[f"{kind}/{name}"][:active] for kind in "mvt")
                weight.sub_(self._adam(gradient, m, v, t), alpha=lr)
            elif self.momentum:
                m = state[f"m/{name}"][:active]
                weight.sub_(m.mul_(self.momentum).add_(gradient), alpha=lr)
            else:
                weight.sub_(gradient, alpha=lr)

    def _adam(self, gradient: Tensor, m: Tensor, v: Tensor, t: Tensor) -> Tensor:
        """The direction of Kingma and Ba's Algorithm 1; the bias correction uses each client's own count."""
        first, second = self.betas
        t.add_(1)
        m.mul_(first).add_(gradient, alpha=1 - first)
        v.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = (v / along(1 - second**t, v)).sqrt_().add_(self.epsilon)
        return (m / along(1 - first**t, m)).div_(spread)
