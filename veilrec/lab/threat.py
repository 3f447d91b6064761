"""The protocol of an attack: whose labels are known, what is granted, how attackers are chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from veilrec.attack import GRANTS
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Bounds, hold, takes
from veilrec.errors import BadInput, nearest

__all__ = ["CONSENTING", "OTHERS", "Known", "Threat", "known_from"]

Known = Annotated[float, Bounds(0, 1, above=True, below=True)] | Literal["consenting", "others"]
CONSENTING: Literal["consenting"] = "consenting"
OTHERS: Literal["others"] = "others"


@takes("threat")
@dataclass(frozen=True)
class Threat:
    """A threat model: attributes wanted, labels known, what is granted, and how attackers are judged.

    Attributes:
        attributes: What the attacker is after; empty for every attribute of the data.
        known: The share of users whose label the attacker has; drawn after training. Or ``consenting``: of
            each attribute those who share it openly, and all others with a label are the targets. Or
            ``others``: all who did not ask for an erasure, and those who did are the targets.
        stratified: Take that share of each class, so that no class is missing; not where those are known who
            consent, since they are not drawn.
        balanced: First drop users at random until all classes are as small as the smallest. Where those are
            known who consent, among them and among the targets apart, each down to its own smallest class.
        repeats: Draws of known and target users; scores are means over them. Those who consent are the same
            in each: only folds, what attackers draw, and who is dropped by `balanced` differ.
        folds: The known users are cut into so many parts, each in turn held out: what an attacker chooses by.
        selection: Of an attacker that learns in stages, the last, the best on held-out known users, or the
            best on the targets themselves: an oracle that nobody has, and every table says so.
        grants: What the attacker has beyond the uploads: ``interactions``, ``user_vectors``, ``withheld``,
            ``tables``.
        by_part: Also attack each part of the model alone; if not, the protocols of `also` do not either.
        membership: Also ask which items each user touched.
        resamples: Of users, for the intervals.
        permutations: Of labels, for the p-value.
        also: Protocols of papers that are run beside this one: ``pard``, ``apm``, ``apm-four``, ``aegis``, …;
            ``apm@0.3`` is ``apm`` with that share of the users known, under that name, and
            ``pard@consenting`` is ``pard`` with those known who consent.
        own: Whether our own protocol is run as well; false for those of `also` alone.
        along: A protocol that is also run at each look at the validation items, with at most five draws: a
            curve of balanced accuracy beside the metrics, by which nothing is chosen. "" for none.
    """

    attributes: Sequence[str] = ()
    known: Known = 0.2
    stratified: bool = True
    balanced: bool = False
    repeats: Annotated[int, Bounds(1, 1_000)] = 1
    folds: Annotated[int, Bounds(2, 100)] = 3
    selection: Literal["last", "validation", "oracle"] = "last"
    grants: Sequence[str] = ()
    by_part: bool = True
    membership: bool = True
    resamples: Annotated[int, Bounds(100, 100_000)] = 500
    permutations: Annotated[int, Bounds(99, 1_000_000)] = 999
    also: Sequence[str] = ()
    own: bool = True
    along: str = ""

    def __post_init__(self) -> None:
        hold(self, "threat")
        if isinstance(self.known, str) and self.known not in (CONSENTING, OTHERS):
            fix = f'give a number between 0 and 1, or "{CONSENTING}", or "{OTHERS}"'
            raise BadInput("threat.known", f"{self.known} is no share", fix)
        if not self.own and not self.also:
            raise BadInput("threat.own", "nobody attacks", "name protocols in `also`, or set it to true")
        for grant in self.grants:
            if grant not in GRANTS:
                raise BadInput(
                    "threat.grants", f'nothing called "{grant}" can be granted', nearest(grant, GRANTS)
                )

    @property
    def share(self) -> float | None:
        """The share of users that is drawn as known; None where it is given who is."""
        return None if isinstance(self.known, str) else self.known

    def draw(self, label: Tensor, tags: Tensor, keys: Keys, consents: Tensor | None = None) -> KnownDraw:
        """Cut the users with a label into known and target ones; `tags` are hashes of their ids.

        ``label [users]``: classes with -1 for unknown, or values with NaN. ``consents [users]``: who shares
        it openly, None for nobody; looked at only where those are known.
        """
        there = ~label.isnan() if label.is_floating_point() else label >= 0
        if self.share is None:
            given = torch.zeros_like(there) if consents is None else consents
            return self._as_given(label, there, given, keys.fold("balance").fold(tags))
        order = keys.fold("known").fold(tags).uniform(dtype=torch.float64)  # [users]
        if label.is_floating_point():
            group = torch.zeros_like(there, dtype=torch.int64)
        else:
            there = self._levelled(label, there, keys.fold("balance").fold(tags)) if self.balanced else there
            group = label if self.stratified else torch.zeros_like(label)
        known = torch.zeros_like(there)
        for name in group[there].unique():
            members = (there & (group == name)).nonzero().squeeze(1)
            count = max(1, round(self.share * len(members)))
            known[members[order[members].argsort()[:count]]] = True
        return KnownDraw(known, there & ~known)

    def _as_given(self, label: Tensor, there: Tensor, consents: Tensor, keys: Keys) -> KnownDraw:
        """Known are those who consent; classes are levelled on either side, since nobody may change sides."""
        known, target = there & consents, there & ~consents
        if self.balanced and not label.is_floating_point():
            known, target = (self._levelled(label, side, keys) for side in (known, target))
        return KnownDraw(known, target)

    def _levelled(self, label: Tensor, there: Tensor, keys: Keys) -> Tensor:
        """Choose the users who stay when every class is cut down to the smallest."""
        order, stay = keys.uniform(dtype=torch.float64), torch.zeros_like(there)
        counts = torch.bincount(label[there])
        smallest = int(counts[counts > 0].min()) if bool(there.any()) else 0
        for name in label[there].unique():
            members = (there & (label == name)).nonzero().squeeze(1)
            stay[members[order[members].argsort()[:smallest]]] = True
        return stay


def known_from(text: str) -> Known | None:
    """A share of the users as somebody types it, or the word for those who consent; None for neither."""
    if text == CONSENTING:
        return CONSENTING
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share < 1 else None


@dataclass(frozen=True)
class KnownDraw:
    """Users whose label the attacker has, and users whose label it is after; nobody is both.

    Attributes:
        known, target: ``[users]`` masks.
    """

    known: Tensor
    target: Tensor

    def hide(self, label: Tensor) -> Tensor:
        """The labels with all but the known ones hidden."""
        return _hidden(label, self.known)

    def folds(self, label: Tensor, tags: Tensor, keys: Keys, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The known users cut into parts of like classes: ``(labels without the part, mask of the part)``."""
        order = keys.fold("fold").fold(tags).uniform(dtype=torch.float64)
        part = torch.full(self.known.shape, -1)
        group = torch.zeros_like(part) if label.is_floating_point() else label
        dealt = 0
        for name in group[self.known].unique():  # dealt like cards, class by class: parts differ by one user
            members = (self.known & (group == name)).nonzero().squeeze(1)
            part[members[order[members].argsort()]] = (torch.arange(len(members)) + dealt) % count
            dealt += len(members)
        for k in range(count):
            yield _hidden(label, self.known & (part != k)), part == k


def _hidden(label: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown, label, float("nan") if label.is_floating_point() else -1)
