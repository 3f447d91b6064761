"""Choosing: by which eraser a request is carried out, and why; one that was named is never swapped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.eraser import AttributeEraser, Request
from veilrec.erasers.common.rounds import RoundEraser
from veilrec.erasers.leace_null import LeaceNull
from veilrec.erasers.lethe import Lethe
from veilrec.errors import BadInput, near_ids, nearest
from veilrec.interactions import id_hashes

__all__ = ["AUTO", "LABEL_FREE", "Asked", "Choice", "KnownUsers", "choose"]

AUTO, LABEL_FREE = "auto", "leace_null"
FEWEST = 2  # users of a class, without which nothing can be learned of it


@dataclass(frozen=True)
class KnownUsers:
    """Users, and the classes that are known of them.

    Attributes:
        ids: ``[users]`` their ids.
        labels: By attribute, ``[users]`` classes, -1 unknown.
        classes: By attribute, the names of its classes.
    """

    ids: Sequence[str]
    labels: Mapping[str, Tensor]
    classes: Mapping[str, Sequence[str]]

    def places(self, users: Collection[str], where: str = "--user") -> Tensor:
        """``[users]`` a mask of some users.

        Raises:
            BadInput: Where nobody goes by an id.
        """
        place = {name: row for row, name in enumerate(self.ids)}
        for name in users:
            if name not in place:
                raise BadInput(where, f'nobody is called "{name[:60]}"', near_ids(name, self.ids))
        mask = torch.zeros(len(self.ids), dtype=torch.bool)
        mask[[place[name] for name in users]] = True
        return mask


@dataclass(frozen=True)
class Asked:
    """What somebody asks for.

    Attributes:
        attributes: What shall be forgotten.
        users: ``[users]`` who asks; None for everybody.
        lends: ``[users]`` from whom an eraser may learn that needs no label of those who ask; None for
            everybody else.
        copies: Whether somebody may have the vectors as they were.
        method: The name of an eraser, or `AUTO`.
    """

    attributes: Sequence[str]
    users: Tensor | None = None
    lends: Tensor | None = None
    copies: bool = False
    method: str = AUTO
    named: AttributeEraser | None = field(default=None, compare=False)


class Choice(NamedTuple):
    """A request with the eraser that carries it out, and the reason for that one."""

    request: Request
    eraser: AttributeEraser
    why: str


def choose(asked: Asked, people: KnownUsers) -> Choice:
    """The eraser for a request.

    Raises:
        BadInput: Where an attribute is unknown or has one class alone, where nobody is left to learn from, or
            where the eraser that was named refuses.
    """
    request = request_of(asked, people)
    if asked.named is not None:
        if isinstance(asked.named, RoundEraser):
            what = f"{asked.method} goes on training, and a request is carried out on what is there"
            raise BadInput(
                "--method", what, f"take --method lethe or {LABEL_FREE}, or an [[eraser]] in a recipe"
            )
        if why := asked.named.refusal(request):
            raise BadInput("--method", f"{asked.method}: {why}", f"take --method {LABEL_FREE}, or auto")
        return _sound(Choice(request, asked.named, "it was asked for by name"))
    if asked.copies:
        why = "vectors may have left: what changes in them tells much of the class, and less than by lethe"
        return _sound(Choice(request, LeaceNull(), why))
    if Lethe().refusal(request):  # which counts classes of those who ask: nothing for a receipt
        return _sound(Choice(request, LeaceNull(), "those who ask are too few, or too much alike, for lethe"))
    return _sound(Choice(request, Lethe(), "those who ask are enough to be moved among each other"))


def request_of(asked: Asked, people: KnownUsers) -> Request:
    """What an eraser is told; who does not ask lends, unless only some do."""
    for name in asked.attributes:
        if name not in people.labels:
            raise BadInput("--attribute", f'nothing is known of "{name}"', nearest(name, people.labels))
    labels = {name: people.labels[name] for name in dict.fromkeys(asked.attributes)}
    counts = {name: len(people.classes[name]) for name in labels}
    lends = asked.lends
    if asked.users is not None and lends is None:
        lends = ~asked.users if bool((~asked.users).any()) else None
    elif asked.users is not None and lends is not None:
        lends = lends & ~asked.users
    return Request(labels, counts, asked.users, lends, tags=id_hashes(people.ids))


def _sound(choice: Choice) -> Choice:
    """The same choice, which has users of two classes to learn from."""
    request, eraser = choice.request, choice.eraser
    for name, label in request.labels.items():
        who = request.counts_in(name, aware=eraser.needs_labels)
        users = torch.bincount(label[who], minlength=2)
        if int((users >= FEWEST).sum()) < 2:
            of = "those who ask" if eraser.needs_labels or request.lends is None else "those to learn from"
            told = ", ".join(f"{count}" for count in users.tolist() if count) or "none"
            what = (
                f"{name} has fewer than two classes with {FEWEST} users among {of} (users by class: {told})"
            )
            fix = "there is nothing to be told apart, or nobody to learn from"
            if request.lends is not None and not eraser.needs_labels:
                fix += ": name others with --lenders"
            raise BadInput("--attribute", what, fix)
    return choice
