"""DLG: find the input and the label that have the gradient of a classifier which devices upload.

Papers: Zhu, Liu and Han, "Deep Leakage from Gradients", NeurIPS 2019 (DLG); FedAU², AAAI 2026, §3.3 and §4.3.
Eq. (4) → DLG.reconstruct, Eq. (7) and (8) → components.

DLG finds the label that the device trained its classifier on. If that label is not the true one, as under
randomised response, the attack scores against the truth as well as the uploaded label does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.attack import Seen, Task
from veilrec.attacks.common.gradients import Slopes, blocks, check, recorded, slopes, some_of
from veilrec.attacks.common.heads import Head, OnGradient
from veilrec.attacks.common.matching import LEAST, way_down
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Positive, Seed, Steps
from veilrec.base.params import Params
from veilrec.errors import BadInput

__all__ = ["DLG", "Replay", "components"]

BLOCK = 128  # users who are matched at once: their gradients fit the cache of a CPU
ENOUGH = 0.01  # no further try where ‖∇W′ − ∇W‖² is below this share of ‖∇W‖²
ON_GPU = 1 << 28  # values of gradients there, some gigabytes in all: a step costs the same for many users


class Replay(NamedTuple):
    """The result of a search: for every user an input and a label that reproduce the user's gradient."""

    vector: Tensor  # [users, dim] em′
    label: Tensor  # [users, classes] y′: its logits, or the raw label
    mismatch: Tensor  # [users] ‖∇W′ − ∇W‖² / ‖∇W‖²; infinite where there was no gradient
    predicted: Tensor  # [users, classes] ŷ′ of Eq. (7): what the head makes of em′
    correction: Tensor  # [users, classes] δ of Eq. (8)


@dataclass(frozen=True)
class DLG(OnGradient):
    """Look for an input and a label that have the user's gradient; the label found is the guess.

    Every user is a problem of its own, and a step of all of them is one batched call. Adam works number by
    number, so it batches as it is. L-BFGS, which the DLG paper uses, would need a line search for each user
    and does badly on a ReLU; it is left out. FedAU²'s attack is ``starts = [1.0]``, ``soft_label = false``.

    Two devices upload the gradient of a linear classifier at weights of zero, where p is even: p − y is −½
    for the class that each of them has, and a row of the matrix's gradient is that number times the user's
    vector. Both come to light:

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
    >>> task = Task(known=torch.tensor([-1, -1]), classes=2)
    >>> found = DLG(steps=40, lr=0.3, starts=(1.0,)).reconstruct(seen, task)
    >>> found.label.argmax(1).tolist(), found.vector.round().tolist()
    ([0, 1], [[1.0, 2.0], [3.0, 1.0]])

    Attributes:
        part: The classifier, a part of the model; where there is none of the name, the attribute's own:
            ``adversary_gender``.
        steps, lr: Of Adam.
        starts: One try each: the standard deviation of its first input. User vectors are small, and an input
            far larger than the truth rarely finds back; the try that matches best is kept.
        soft_label: The label is a softmax of what is searched, as in the DLG paper; or is it, raw.
        seed: Of the first inputs and labels.
        kept: Instead of the probe, match each user's last upload of training that was kept (`record`).
    """

    part: str = "adversary"
    steps: Steps = 300
    lr: Positive = 0.1
    starts: tuple[Positive, ...] = (0.1, 0.3, 1.0)
    soft_label: bool = True
    seed: Seed = 0
    kept: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.starts:
            raise BadInput("attack.starts", "an empty list", "give numbers above 0, at least one")

    def infer(self, seen: Seen, task: Task) -> Tensor:
        return self.reconstruct(seen, task).label.softmax(1).double()

    def components(self, seen: Seen, task: Task) -> dict[str, Tensor]:
        """ŷ′ and δ of Eq. (7), ``[users, classes]``."""
        replay = self.reconstruct(seen, task)
        return {"predicted": replay.predicted.double(), "correction": replay.correction.double()}

    def reconstruct(self, seen: Seen, task: Task) -> Replay:
        """The input and the label found for every user, Eq. (4).

        Nobody's label is needed, so one search serves every draw of known users.
        """
        self._check_kept(seen, task)
        head, part = self._head(seen, task)
        return seen.cached((self, part), lambda: self._everyone(seen, head, part))

    def _everyone(self, seen: Seen, head: Head, part: str) -> Replay:
        public = check(seen, part)
        n, dim, classes = public.n_users, head.first.inputs, head.classes
        shapes = {"vector": (n, dim), "mismatch": (n,)}
        found = Replay(*(torch.zeros(shapes.get(name, (n, classes))) for name in Replay._fields))
        found.mismatch.fill_(torch.inf)
        for block in self._blocks(seen, head, part):
            for whole, some in zip(found, self._tries(head, block), strict=True):
                whole[block.user.cpu()] = some.to(whole)
        return found

    def _blocks(self, seen: Seen, head: Head, part: str) -> Iterator[Slopes]:
        """All users, some at a time, each once; those of a block were sent the same weights."""
        values = sum(weight.numel() for weight in head.module.parameters())
        sizes = BLOCK, max(1, ON_GPU // values)
        if not self.kept:
            yield from blocks(slopes(seen, part), *sizes)
            return
        for round, new in _last_rounds(seen, part):
            chunks = recorded(seen, part, self.looks_at(head), round)
            yield from blocks(
                (some_of(chunk, new.to(chunk.user.device)[chunk.user]) for chunk in chunks), *sizes
            )

    def looks_at(self, head: Head) -> list[str]:
        return [name for name, _ in head.module.named_parameters()]

    def _tries(self, head: Head, block: Slopes) -> Replay:
        """Try after try, for those who are not matched well enough yet."""
        user, weights, gradient = block
        n, like = len(user), weights[head.first.weight]
        vector, label = like.new_zeros(n, head.first.inputs), like.new_zeros(n, head.classes)
        mismatch = like.new_full((n,), torch.inf)
        keys = Keys.seed(self.seed, user.device).fold("dlg").fold(user)
        for number, scale in enumerate(self.starts):
            left = (mismatch > ENOUGH).nonzero().squeeze(1)
            if len(left):
                some = Slopes(user[left], weights, {name: slope[left] for name, slope in gradient.items()})
                tried = self._match(head, some, keys.pick(left).fold(number), scale)
                better = tried[2] < mismatch[left]
                for whole, part in zip((vector, label, mismatch), tried, strict=True):
                    whole[left[better]] = part[better]
        return Replay(vector, label, mismatch, *components(head, weights, gradient, vector, keys))

    def _match(self, head: Head, some: Slopes, keys: Keys, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """``[n, dim]`` and ``[n, classes]`` after one try, and ``[n]`` how far their gradients are off."""
        dtype = some.weights[head.first.weight].dtype
        vector = scale * keys.fold("input").normal(head.first.inputs, dtype=dtype)
        label = keys.fold("label").normal(head.classes, dtype=dtype)
        way = way_down(head, some.weights, some.gradient, soft_label=self.soft_label)
        # Steps in proportion to the start, or a small input is shaken to pieces. At scale 1 as published.
        groups: list[dict[str, Any]] = [{"params": [vector], "lr": self.lr * scale}, {"params": [label]}]
        adam = torch.optim.Adam(groups, lr=self.lr)
        for step in range(self.steps):
            vector.grad, label.grad, _ = way(vector, label, keys.fold("step").fold(step))
            adam.step()
        return vector, label, way(vector, label, keys.fold("step").fold(self.steps))[2]


def _last_rounds(seen: Seen, part: str) -> Iterator[tuple[int, Tensor]]:
    """The kept rounds, newest first, each with ``[users]`` whose last upload it holds; where it holds any."""
    assert seen.kept is not None
    public = check(seen, part)
    done = torch.zeros(public.n_users, dtype=torch.bool)
    for round in seen.kept.rounds[::-1]:
        there = torch.zeros_like(done)
        there[public.seats[seen.kept.cohort(round), 0]] = True
        if bool((new := there & ~done).any()):
            done |= new
            yield round, new


def components(
    head: Head, weights: Params, gradient: Params, vector: Tensor, keys: Keys
) -> tuple[Tensor, Tensor]:
    """The two parts of FedAU²'s Theorem 1, whose difference ŷ′ − δ is the best dummy label, Eq. (7).

    Args:
        head: What is attacked.
        weights: As they were sent.
        gradient: Of each user, ``[n, …]``.
        vector: ``[n, dim]`` the inputs em′ that were found.
        keys: ``[n]``, for a head that draws.

    Returns:
        ``[n, classes]`` ŷ′, the prediction on em′, and δ_i = h′·∇W_i/‖h′‖², h′ being the last layer's input.
    """
    given, logits = vmap(head.before_last, in_dims=(None, 0, 0))(weights, vector, keys)
    rows = head.class_rows(gradient)  # [n, classes, in]
    correction = (rows @ given[..., None]).squeeze(2) / given.square().sum(1, keepdim=True).clamp(min=LEAST)
    return logits.softmax(1), correction
