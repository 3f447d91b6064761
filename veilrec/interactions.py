"""Interactions: a log of users and the items they touched, in time order; all data begins as one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys, hash_text

__all__ = ["Interactions", "Split"]


@dataclass(frozen=True, repr=False)
class Interactions:
    """A log of events, one column per field; ids run from 0 without gaps.

    >>> from veilrec.datasets.synthetic import synthetic
    >>> log = synthetic(users=3, items=8)
    >>> log.counts, log.classes["gender"]
    (tensor([3, 3, 3]), ('female', 'male'))

    Attributes:
        user, item: ``[events]``, sorted by user and then by time; equal times are put in the order of a
            keyed hash of the two ids, so that neither row order nor id order decides what is held out.
        n_users, n_items: Numbers of users and items, including those without events.
        user_ids, item_ids: The original ids, by index, as people see them.
        rating, time: ``[events]`` or None, as in the source.
        attributes: Labels that an attacker may want, e.g. ``{"gender": [users]}``; -1 is unknown.
        classes: The name of each class of each attribute, by class number.
        values: Continuous attributes, ``[users]`` float64, e.g. ages in years; NaN is unknown.
        features: ``[users, width]`` facts that a device knows about its own user, if any.
        feature_names: Names of their columns; ``gender=female`` is a column of a one-hot block.
        texts: One title per item, where known.
        report: Sentences on the rows that were dropped while reading, and the reasons.
        name: The source of the log.
    """

    user: Tensor
    item: Tensor
    n_users: int
    n_items: int
    user_ids: Sequence[str]
    item_ids: Sequence[str]
    rating: Tensor | None = None
    time: Tensor | None = None
    attributes: Mapping[str, Tensor] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, Tensor] = field(default_factory=dict)
    features: Tensor | None = None
    feature_names: Sequence[str] = ()
    texts: Sequence[str] | None = None
    report: Sequence[str] = ()
    name: str = "log"

    def __repr__(self) -> str:
        """Counts and names of attributes; nobody's id, which a notebook would keep."""
        known = [*self.attributes, *self.values]
        about = f"; attributes: {', '.join(known)}" if known else ""
        counts = f"{self.n_users:,} users, {self.n_items:,} items, {len(self.user):,} events"
        return f"<Interactions {self.name}: {counts}{about}>"

    @classmethod
    def build(
        cls,
        user: Tensor,
        item: Tensor,
        user_ids: Sequence[str],
        item_ids: Sequence[str],
        *,
        rating: Tensor | None = None,
        time: Tensor | None = None,
        split_seed: int = 0,
        **rest: object,
    ) -> Interactions:
        """A log from rows in any order: repeated pairs are dropped (the earliest stays), the rest sorted.

        `user` and `item` index the lists of ids, which must not depend on the order of the rows.

        Ann saw Brazil, then Alien, then Brazil once more, which is dropped; Bob saw Brazil:

        >>> user, item = torch.tensor([0, 1, 0, 0]), torch.tensor([0, 1, 1, 1])
        >>> time = torch.tensor([20, 5, 10, 30])
        >>> log = Interactions.build(user, item, ["Ann", "Bob"], ["Alien", "Brazil"], time=time)
        >>> log.user, log.item, log.time
        (tensor([0, 0, 1]), tensor([1, 0, 1]), tensor([10, 20,  5]))
        >>> log.report[0]
        '1 rows repeat an earlier (user, item) pair: dropped, the earliest stays'
        """
        order = _order(user, item, user_ids, item_ids, rating, time, split_seed)
        user, item = user[order], item[order]
        first = _first_of_pair(user, item, len(item_ids))
        report = list(rest.pop("report", ()))  # type: ignore[call-overload]
        if dropped := int((~first).sum()):
            report.append(
                f"{dropped:,} rows repeat an earlier (user, item) pair: dropped, the earliest stays"
            )
        if time is None and len(user):
            report.append("no times: the order of a user's events is random (keyed by the two ids)")
        return cls(
            user=user[first],
            item=item[first],
            n_users=len(user_ids),
            n_items=len(item_ids),
            user_ids=user_ids,
            item_ids=item_ids,
            rating=None if rating is None else rating[order][first],
            time=None if time is None else time[order][first],
            report=tuple(report),
            **rest,  # type: ignore[arg-type]
        )

    def __len__(self) -> int:
        return len(self.user)

    def check(self) -> None:
        """Refuse a log from a file that `build` could not have made.

        >>> from veilrec.datasets.synthetic import synthetic
        >>> replace(synthetic(users=3, items=8), n_users=2, user_ids=["Ann", "Bob"]).check()
        Traceback (most recent call last):
        ValueError: events name ids that do not exist

        Raises:
            ValueError: With the first thing that does not fit.
        """
        columns = {"item": self.item, "rating": self.rating, "time": self.time}
        for name, column in columns.items():
            if column is not None and column.shape != self.user.shape:
                raise ValueError(f"{name} is not one number an event")
        if self.user.dim() != 1 or (self.user.diff() < 0).any():
            raise ValueError("events are out of order")
        for column, size in ((self.user, self.n_users), (self.item, self.n_items)):
            if column.dtype != torch.int64:
                raise ValueError("ids of events are no whole numbers")
            if len(column) and (int(column.min()) < 0 or int(column.max()) >= size):
                raise ValueError("events name ids that do not exist")
        self._check_people()
        if len(self.texts or self.item_ids) != self.n_items or len(self.item_ids) != self.n_items:
            raise ValueError("items and their names are not equally many")

    def _check_people(self) -> None:
        """Refuse what is not one a user."""
        if len(self.user_ids) != self.n_users:
            raise ValueError("users and their names are not equally many")
        for name, label in self.attributes.items():
            most = len(self.classes.get(name, range(1 << 31))) - 1
            fits = label.shape == (self.n_users,) and not label.is_floating_point()
            if not fits or (len(label) and (int(label.min()) < -1 or int(label.max()) > most)):
                raise ValueError(f"attribute {name} does not fit its classes")
        for name, value in self.values.items():
            if value.shape != (self.n_users,) or value.dtype != torch.float64 or value.isinf().any():
                raise ValueError(f"{name} is not one number a user")
        if (rows := self.features) is not None and (rows.dim() != 2 or len(rows) != self.n_users):
            raise ValueError("features are not one row a user")

    @property
    def counts(self) -> Tensor:
        """``[users]`` events of each user."""
        return torch.bincount(self.user, minlength=self.n_users)

    def leave_one_out(self, *, validation: bool = True) -> Split:
        """Hold out every user's last event for the test and the one before for validation.

        A user with two events has no validation item; a user with one event is only trained on. With
        `validation` off nobody has one, and the event before the last is trained on.

        >>> user, item = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 3, 3, 0])
        >>> log = Interactions.build(user, item, ["Ann", "Bob"], list("abcd"), time=torch.arange(6))
        >>> split = log.leave_one_out()
        >>> split.train.item, split.validation, split.test
        (tensor([0, 1, 3]), tensor([ 2, -1]), tensor([3, 0]))
        """
        counts = self.counts
        last = counts.cumsum(0) - 1  # [users] the place of each one's last event
        tested, looked = counts >= 2, (counts >= 3) & validation
        stays = torch.ones(len(self), dtype=torch.bool)
        stays[last[tested]] = False
        stays[last[looked] - 1] = False
        return Split(self.take(stays), self._held(looked, last - 1), self._held(tested, last))

    def take(self, events: Tensor) -> Interactions:
        """The log with only some of its events (a mask or an index in ascending order)."""
        return replace(
            self,
            user=self.user[events],
            item=self.item[events],
            rating=None if self.rating is None else self.rating[events],
            time=None if self.time is None else self.time[events],
        )

    def only(self, users: Tensor) -> Interactions:
        """The log of some users ``[n]``, ascending, counted anew from 0; all items stay.

        >>> from veilrec.datasets.synthetic import synthetic
        >>> synthetic(users=3, items=8).only(torch.tensor([0, 2])).user_ids
        ['u0001', 'u0003']
        """
        place = torch.full((self.n_users,), -1, device=users.device)
        place[users] = torch.arange(len(users), device=users.device)
        some = self.take(place[self.user] >= 0)
        return replace(
            some,
            user=place[some.user],
            n_users=len(users),
            user_ids=[self.user_ids[k] for k in users.tolist()],
            attributes={name: label[users] for name, label in self.attributes.items()},
            values={name: value[users.cpu()] for name, value in self.values.items()},
            features=None if self.features is None else self.features[users],
        )

    def _held(self, users: Tensor, place: Tensor) -> Tensor:
        """``[users]`` the item of each one's event at a place ``[users]``; -1 where the mask has nobody."""
        held = torch.full((self.n_users,), -1)
        held[users] = self.item[place[users]]
        return held


class Split(NamedTuple):
    """A log without its last events, and those events: ``[users]`` items, -1 where there is none."""

    train: Interactions
    validation: Tensor
    test: Tensor


def id_hashes(ids: Sequence[str]) -> Tensor:
    """``[ids]`` a 64-bit hash of each original id, which keys all randomness about that person."""
    return torch.tensor([hash_text(name) for name in ids], dtype=torch.int64)


def lots(ids: Sequence[str], *secrets: Tensor) -> Tensor:
    """``[ids]`` words that key resampling: hashes of a person's id and of data that only its owner has.

    Keyed by ids alone, the replicates in a result would be equations that anybody could solve for each user.
    """
    whole = hashlib.sha256(b"resamples")
    for secret in secrets:
        whole.update(secret.detach().cpu().contiguous().numpy().data)
    word = int.from_bytes(whole.digest()[:8], "little", signed=True)
    return Keys(torch.tensor(word)).fold(id_hashes(ids)).value


def _order(
    user: Tensor,
    item: Tensor,
    user_ids: Sequence[str],
    item_ids: Sequence[str],
    rating: Tensor | None,
    time: Tensor | None,
    split_seed: int,
) -> Tensor:
    """The order of the events: by user, time, keyed hash of (user, item), and at last by rating.

    Only runs of equal user and time are hashed: they are few, and the rest is in order by then.
    """
    order = _sorted_by(time, user)
    same = user[order].diff() == 0  # [events - 1] as the one before
    if time is not None:
        same &= time[order].diff() == 0
    starts = torch.cat([torch.ones(min(1, len(order)), dtype=torch.bool), ~same])
    tied = torch.nonzero(~(starts & torch.cat([~same, starts[:1]]))).squeeze(1)  # equal to a neighbour
    event, run = order[tied], starts.cumsum(0)[tied]
    keys = Keys.seed(split_seed).fold("ties")
    tie = keys.fold(id_hashes(user_ids)[user[event]]).fold(id_hashes(item_ids)[item[event]]).value
    return order.index_copy(0, tied, event[_sorted_by(None if rating is None else rating[event], tie, run)])


def _sorted_by(*columns: Tensor | None) -> Tensor:
    """The order by several columns, the least significant first; a missing one decides nothing."""
    there = [column for column in columns if column is not None]
    order = torch.arange(len(there[-1]))
    for column in there:
        order = order[column[order].argsort(stable=True)]
    return order


def _first_of_pair(user: Tensor, item: Tensor, n_items: int) -> Tensor:
    """A mask of the events that are the first of their (user, item) pair, in the order given."""
    pair, order = (user * n_items + item).sort(stable=True)
    first = torch.ones(len(pair), dtype=torch.bool)
    first[1:] = pair[1:] != pair[:-1]
    mask = torch.empty_like(first)
    mask[order] = first
    return mask
