"""iDLG: read a label off the last layer's gradient of a classifier that devices upload.

Papers: Zhao, Mopuri and Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020; FedAU², AAAI 2026, §4.3.

Like DLG it finds the label that the device trained its classifier on, be it the truth or not. Nothing is
searched: it is a sum over each row. Several uploads of a user vote, be they made from one state or kept of
training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from veilrec.attack import Seen, Task
from veilrec.attacks.common.gradients import check, recorded, slopes
from veilrec.attacks.common.heads import Head, OnGradient
from veilrec.attacks.common.matching import LEAST
from veilrec.base.limits.bounds import Bounds
from veilrec.base.params import Params
from veilrec.errors import BadInput

__all__ = ["iDLG"]


@dataclass(frozen=True)
class iDLG(OnGradient):  # noqa: N801  # its paper writes it so
    """The class whose row of the last layer's gradient has the least sum: exact for one user's cross-entropy.

    The gradient by the logits is p − y, negative for the true class alone. A row of the last matrix's
    gradient is that number times the layer's input, which a ReLU keeps from being negative; the bias's
    gradient is the number itself, whatever the activation.

    Two devices upload the gradient of a linear classifier at weights of zero, where p is even: p − y is −½
    for the class that each of them has.

    >>> from veilrec.attack import Public
    >>> from veilrec.base.params import Part, Scope
    >>> from veilrec.model import with_part
    >>> from veilrec.models.fedmf import FedMF
    >>> from veilrec.wire.uploads import Exchange, Letter, Uploads
    >>> head, seats = torch.nn.Linear(2, 2), torch.tensor([[0], [1]])
    >>> model = with_part(FedMF(3, dim=2), "adversary", head, Part(Scope.SHARED))
    >>> vector, residue = torch.tensor([[1.0, 2.0], [3.0, 1.0]]), torch.tensor([[-0.5, 0.5], [0.5, -0.5]])
    >>> slopes = {"adversary.weight": residue[:, :, None] * vector[:, None], "adversary.bias": residue}
    >>> letter = Letter({"adversary.weight": torch.zeros(2, 2), "adversary.bias": torch.zeros(2)}, {})
    >>> public = Public(model, {}, gradients=True, rate=None, seats=seats, n_users=2)
    >>> exchange = Exchange(1, letter, Uploads(torch.arange(2), slopes))
    >>> seen = Seen(public, lambda *parts: iter([exchange]))
    >>> iDLG().infer(seen, Task(known=torch.tensor([-1, -1]), classes=2)).argmax(1)
    tensor([0, 1])

    Attributes:
        part: The classifier, a part of the model; where there is none of the name, the attribute's own:
            ``adversary_gender``.
        bias: Read the last layer's bias where it has one; else always the rows, as in the paper.
        uploads: How many uploads of each user it has, all from one state: they vote. Where a head draws, as a
            DSVAE does, one upload may mislead and several hardly do.
        kept: Instead of the probe, read the uploads of training that were kept (`record`): all of a user's
            vote.
    """

    part: str = "adversary"
    bias: bool = True
    uploads: Annotated[int, Bounds(1, 10_000)] = 1
    kept: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kept and self.uploads > 1:
            raise BadInput("attack.uploads", "all that were kept are read", "leave it out")

    def infer(self, seen: Seen, task: Task) -> Tensor:
        self._check_kept(seen, task)
        head, part = self._head(seen, task)

        def read(again: int) -> Tensor:  # once for all draws of known users
            key = ("iDLG", part, self.bias, self.kept, again)
            return seen.cached(key, lambda: self._read(seen, head, part, again))

        if self.uploads == 1:
            return read(0)
        return torch.stack([_scaled(read(again)) for again in range(self.uploads)]).mean(0)

    def _read(self, seen: Seen, head: Head, part: str, again: int) -> Tensor:
        """``[users, classes]`` scores from one upload, or the sum over all that were kept."""
        scores = torch.zeros(check(seen, part).n_users, head.classes, dtype=torch.float64)
        if not self.kept:
            for user, _, gradient in slopes(seen, part, again):
                scores[user.cpu()] = self._scores(head, gradient)
            return scores
        assert seen.kept is not None  # `_check_kept`
        for round in seen.kept.rounds:
            for user, _, gradient in recorded(seen, part, self.looks_at(head), round):
                scores.index_add_(0, user.cpu(), _scaled(self._scores(head, gradient)))
        return scores

    def looks_at(self, head: Head) -> list[str]:
        return [head.last.bias if self.bias and head.last.bias else head.last.weight]

    def _scores(self, head: Head, gradient: Params) -> Tensor:
        """``[n, classes]`` against the mean of the rows: a score read alone, as by AUC, has heard of all."""
        told = gradient[self.looks_at(head)[0]]
        rows = told[:, : head.classes] if told.dim() == 2 else head.class_rows(gradient).sum(2)
        sums = rows.double().cpu()
        return sums.mean(1, keepdim=True) - sums


def _scaled(one: Tensor) -> Tensor:
    """Scores divided by the largest: unscaled, a long gradient would outvote several short ones."""
    return one / one.abs().amax(1, keepdim=True).clamp(min=LEAST)
