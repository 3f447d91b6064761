"""ItemNets: guess an attribute from the item tables that devices keep as their own, a small net an item.

Paper: FedAU², AAAI 2026, §5.1, as its code attacks FedRAP: "user embedding" there is the whole residual D_u,
``[items, d]``. Each item has a perceptron d → 32 → classes of its own, a user's logits are the mean over the
items, and all nets learn together by one cross-entropy on that mean: Adam with 0.01, 80 steps over all known
users. The tables never leave a device: they must be granted. Those of all known users are held at once, 0.3
GB for a fifth of the paper's MovieLens-1M, and as much for what the nets make of them; the others' are read
some at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from veilrec.attack import Attack, Public, Seen, Task
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Positive, Steps, Width
from veilrec.errors import BadInput

__all__ = ["ItemNets"]

BLOCK = 128  # users whose tables are read at once
NONE = "no device keeps an item table of its own; read the vectors of users"
GRANT = 'the tables stay on the devices; grant "tables"'


@dataclass(frozen=True)
class ItemNets(Attack):
    """A perceptron for each item of the tables that users keep; the mean of their logits is the answer.

    Everybody keeps a table of two items. The label is planted in the first, and known of three users:

    >>> from veilrec.attack import Granted
    >>> label = torch.tensor([0, 1, 0, 1, 1, 0])
    >>> tables = torch.stack([2.0 * label - 1, torch.zeros(6)], 1)[..., None]  # [users, items, 1]
    >>> seen = Seen(None, lambda *parts: iter(()), Granted(tables=lambda users: tables[users]))
    >>> known = torch.where(torch.arange(6) < 3, label, -1)
    >>> ItemNets(hidden=4).infer(seen, Task(known, classes=2)).argmax(1)
    tensor([0, 1, 0, 1, 1, 0])

    Attributes:
        hidden: Width of each net.
        steps, lr: Of Adam, over all known users at once.
    """

    learns: ClassVar[bool] = True

    hidden: Width = 32
    steps: Steps = 80
    lr: Positive = 0.01

    @property
    def family(self) -> str:
        return "neural"

    def refuses(self, public: Public | None, grants: Collection[str]) -> str:
        if public is None or not public.tables:
            return NONE
        return "" if "tables" in grants else GRANT

    def answers(self, seen: Seen, task: Task) -> bool:
        return task.classes > 0 and seen.public is not None and bool(seen.public.tables)

    def infer(self, seen: Seen, task: Task) -> Tensor:
        if seen.granted.tables is None:
            raise BadInput("attack", *(NONE if not self.answers(seen, task) else GRANT).split("; "))
        read, known = seen.granted.tables, task.labelled
        nets = self._fit(read(known), task.known[known], task)
        users = torch.arange(len(task.known))
        with torch.no_grad():
            scores = [_logits(read(some), nets) for some in users.split(BLOCK)]
        return torch.cat(scores).softmax(1).double().cpu()

    def notes(self, seen: Seen) -> dict[str, Any]:
        return {} if seen.public is None else {"tables": ", ".join(seen.public.tables)}

    def _fit(self, tables: Tensor, label: Tensor, task: Task) -> list[Tensor]:
        """The weights of all nets, from ``[known, items, d]`` and ``[known]``."""
        nets = self._fresh(tables, task)
        adam = torch.optim.Adam(nets, lr=self.lr)
        for _ in range(self.steps):
            adam.zero_grad()
            F.cross_entropy(_logits(tables, nets), label.to(tables.device)).backward()
            adam.step()
        return [weight.detach() for weight in nets]

    def _fresh(self, tables: Tensor, task: Task) -> list[Tensor]:
        """Fresh nets, each begun like a linear layer of torch: uniform within 1/√inputs."""
        _, items, width = tables.shape
        keys = Keys.seed(task.seed, tables.device).fold("item nets")
        shapes = {"in": (items, width, self.hidden), "inner": (items, 1, self.hidden)}
        shapes |= {"out": (items, self.hidden, task.classes), "outer": (items, 1, task.classes)}
        reach = {"in": width, "inner": width, "out": self.hidden, "outer": self.hidden}
        drawn = {name: keys.fold(name).uniform(*shape, dtype=tables.dtype) for name, shape in shapes.items()}
        return [((2 * drawn[name] - 1) / reach[name] ** 0.5).requires_grad_() for name in shapes]


def _logits(tables: Tensor, nets: list[Tensor]) -> Tensor:
    """``[users, classes]`` the logits of tables ``[users, items, d]``, the mean over the items."""
    first, inner, last, outer = nets
    hidden = torch.baddbmm(inner, tables.transpose(0, 1), first).relu()  # [items, users, hidden]
    return torch.baddbmm(outer, hidden, last).mean(0)
