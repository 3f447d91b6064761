"""ColumnNorms: read a one-hot input off the update of the matrix that it is multiplied with.

Paper: Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", TKDE 2024 (APM), §3.1 and §3.3.

There a user is z_u = E_U x_u, and x_u holds the attributes themselves. The gradient of E_U is a sum of outer
products g x_uᵀ: where x_u is zero, the column of the update is exactly zero. With the attribute in x_u as a
one-hot block, the class is the one column of that block that moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from veilrec.attack import Attack, Public, Seen, Task
from veilrec.attacks.gradients import check, slopes, source, there
from veilrec.attacks.heads import layers
from veilrec.errors import BadInput

__all__ = ["ColumnNorms"]


@dataclass(frozen=True)
class ColumnNorms(Attack):
    """Score a class by how far its column of the feature matrix moved. An oracle: it is told the layout.

    Attributes:
        part: The matrix E_U, ``[dim, features]``, or a module whose first linear layer it is.
        columns: Where the attribute's block of columns begins; it is as long as there are classes.
        attribute: Whose block it is; "" for whatever fits.
    """

    oracle: ClassVar[bool] = True

    part: str = "user"
    columns: int = 0
    attribute: str = ""

    @property
    def family(self) -> str:
        return "gradient"

    def infer(self, seen: Seen, task: Task) -> Tensor:
        name, features = self._matrix(check(seen, self.part))
        scores = torch.zeros(len(task.known), task.classes, dtype=torch.float64)
        for user, weights, gradient in slopes(seen, self.part):
            self._fits(weights[name].shape[features], task)
            norms = gradient[name].double().norm(dim=2 - features)  # [n, features]
            scores[user.cpu()] = norms[:, self.columns : self.columns + task.classes].cpu()
        return scores

    def answers(self, seen: Seen, task: Task) -> bool:
        return there(seen, self.part) and task.classes > 0 and self.attribute in ("", task.attribute)

    def notes(self, seen: Seen) -> dict[str, Any]:
        told = "which columns of the features are the attribute, and that it is among them"
        return {"gradient": source(check(seen, self.part), self.part), "told": told}

    def _matrix(self, public: Public) -> tuple[str, int]:
        """The name of E_U within its part, and which of its axes counts features."""
        whole = getattr(public.model, self.part)
        if isinstance(whole, nn.Module):
            found = layers(whole)
            if found:
                return found[0].weight, 1 - found[0].out
        elif whole.dim() == 2:
            return "", 1
        raise BadInput("attack.part", f'"{self.part}" holds no matrix', "name the one that features go into")

    def _fits(self, width: int, task: Task) -> None:
        if not 0 <= self.columns <= width - task.classes:
            what = f"{task.classes} columns from {self.columns} do not fit into {width}"
            raise BadInput("attack.columns", what, f"give 0 to {max(0, width - task.classes)}")
