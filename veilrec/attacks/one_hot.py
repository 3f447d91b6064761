"""ColumnNorms: read a one-hot input off the update of the matrix that it is multiplied with.

Paper: Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", TKDE 2024 (APM), §3.1 and §3.3.

There a user is z_u = E_U x_u, and x_u holds the attributes themselves. The gradient of E_U is a sum of outer
products g x_uᵀ: where x_u is zero, the column of the update is exactly zero. With the attribute in x_u as a
one-hot block, the class is the one column of that block that moved.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from veilrec.attack import Attack, Public, Seen, Task
from veilrec.attacks.common.gradients import check, slopes, source, there
from veilrec.attacks.common.heads import layers
from veilrec.errors import BadInput

__all__ = ["ColumnNorms"]


@dataclass(frozen=True)
class ColumnNorms(Attack):
    """Score a class by how far its column of the feature matrix moved. An oracle: it knows the layout.

    Two devices upload the gradient of E_U, of which only the column of their own gender is not zero:

    >>> from veilrec.models.fedgcn import FedGCN
    >>> from veilrec.wire.uploads import Exchange, Letter, Uploads
    >>> names, seats = ["gender=female", "gender=male"], torch.tensor([[0], [1]])
    >>> model = FedGCN(3, n_features=2, dim=2)
    >>> public = Public(model, {}, gradients=True, rate=None, seats=seats, n_users=2, features=names)
    >>> sent = {name: torch.zeros_like(model.get_parameter(name)) for name in model.names()}
    >>> slopes = {name: torch.zeros(2, *weight.shape) for name, weight in sent.items()}
    >>> slopes["user.features"] = torch.tensor([[[0.0, 0.3], [0.0, -0.2]], [[0.4, 0.0], [0.1, 0.0]]])
    >>> uploads = Uploads(torch.arange(2), slopes)
    >>> seen = Seen(public, lambda *parts: iter([Exchange(1, Letter(sent, {}), uploads)]))
    >>> ColumnNorms().infer(seen, Task(torch.tensor([-1, -1]), 2, attribute="gender")).argmax(1)
    tensor([1, 0])

    Attributes:
        part: The matrix E_U, ``[dim, features]``, or a module that calls it ``features`` or begins with it.
            The attribute's block is found by the names of its columns, as in ``gender=female``.
    """

    oracle: ClassVar[bool] = True

    part: str = "user"

    @property
    def family(self) -> str:
        return "gradient"

    def infer(self, seen: Seen, task: Task) -> Tensor:
        public = check(seen, self.part)
        name, features = self._matrix(public)
        columns = self._block(public, task)
        if not columns:
            what, _, fix = _absent(public, task.attribute).partition("; ")
            raise BadInput("attack", what, fix)
        scores = torch.zeros(len(task.known), task.classes, dtype=torch.float64)
        for user, _, gradient in slopes(seen, self.part):
            norms = gradient[name].double().norm(dim=2 - features)  # [n, features]
            scores[user.cpu()] = norms[:, columns].cpu()
        return scores

    def refuses(self, public: Public | None, grants: Collection[str]) -> str:
        if public is None or any("=" in name for name in public.features):
            return ""
        return _absent(public, "any attribute")

    def answers(self, seen: Seen, task: Task) -> bool:
        if not there(seen, self.part) or not task.classes:
            return False
        assert seen.public is not None
        return len(self._block(seen.public, task)) == task.classes

    def notes(self, seen: Seen) -> dict[str, Any]:
        told = "which columns of the features are the attribute, and that it is among them"
        return {"gradient": source(check(seen, self.part), self.part), "told": told}

    def _block(self, public: Public, task: Task) -> list[int]:
        """The columns of the attribute, one a class; none where no column is called after it."""
        return [k for k, name in enumerate(public.features) if name.startswith(f"{task.attribute}=")]

    def _matrix(self, public: Public) -> tuple[str, int]:
        """The name of E_U within its part, and which of its axes counts features."""
        whole = getattr(public.model, self.part)
        if isinstance(whole, nn.Module):
            own = getattr(whole, "features", None)
            if isinstance(own, nn.Parameter) and own.dim() == 2:
                return "features", 1
            found = layers(whole)
            if found:
                return found[0].weight, 1 - found[0].out
        elif whole.dim() == 2:
            return "", 1
        raise BadInput("attack.part", f'"{self.part}" holds no matrix', "name the one that features go into")


def _absent(public: Public, attribute: str) -> str:
    """The reason why no column can be read off, and a remedy."""
    if not public.features:
        return "the model reads no features of its users; attack one that does"
    off = "include_private_features is off"
    return (
        f"the features do not hold {attribute}: {off}; set data.include_private_features, or drop the attack"
    )
