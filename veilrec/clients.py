"""Clients: a log cut by device. No module above this one sees two devices' data at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys, hash_text
from veilrec.base.rows import ragged, starts
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, Split, id_hashes

__all__ = ["Batch", "Clients"]

NONE = torch.zeros(0, 0)


class Batch(NamedTuple):
    """The examples that one device reads in one local step. (A NamedTuple so that `vmap` can look inside.)

    A phone has one seat; a silo that holds many users has one seat per user. Item ids are rows of the
    table the device holds: its local table in training, the whole one when it scores.
    """

    rows: Tensor  # [local] global id of each row of the local item table, -1 where padded
    user: Tensor  # [b] seat of the user
    item: Tensor  # [b] an item that user touched
    negative: Tensor  # [b, q] items that user did not touch
    weight: Tensor  # [b] 1, or 0 where the row is padding
    history: Tensor  # [seats, t] the latest t items in time order, as many as a model asks for; -1 is padding
    features: Tensor  # [seats, f]
    attributes: dict[str, Tensor]  # name → [seats], -1 unknown
    consents: dict[str, Tensor]  # name → [seats]
    rest: Tensor = NONE  # [seats, w] of private rows outside the local table: `summary_of_absent_rows`
    taken: Tensor = NONE  # [seats] whether there is a user; an empty seat only pads a silo
    more: dict[str, Tensor] = {}  # noqa: RUF012  # by name, whatever else a method's examples bring

    @classmethod
    def axes(cls, rows: int | None = 0) -> Batch:
        """The place of the client axis in each field, for `vmap`; with `rows` None all clients share them."""
        return cls(rows, *[0] * (len(cls._fields) - 1))  # type: ignore[arg-type]

    @classmethod
    def by_hand(
        cls,
        n_items: int,
        *,
        item: Sequence[int] = (),
        negative: Sequence[Sequence[int]] = (),
        history: Sequence[int] = (),
    ) -> Batch:
        """One user's step on a device that holds every item: a method can be tried on it in one line.

        >>> Batch.by_hand(3, item=[0, 1], negative=[[2], [2]]).weight
        tensor([1., 1.])
        """
        return cls(
            rows=torch.arange(n_items),
            user=torch.zeros(len(item), dtype=torch.int64),
            item=torch.tensor(item, dtype=torch.int64),
            negative=torch.tensor(negative, dtype=torch.int64).reshape(len(item), -1 if negative else 0),
            weight=torch.ones(len(item)),
            history=torch.tensor(history, dtype=torch.int64)[None],
            features=torch.zeros(1, 0),
            attributes={},
            consents={},
        )


@dataclass(frozen=True)
class Clients:
    """Every device's own data, stored ragged and padded only for the cohort at hand.

    Attributes:
        log: The training events.
        seats: ``[clients, seats]`` the user in each seat; -1 is an empty seat.
        validation, test: ``[clients, seats]`` the items each user is tested on, -1 where there is none.
        consents: By attribute, ``[clients, seats]``: True for users who share it openly. The users whose
            labels an *attacker* knows are chosen by the threat (`lab.threat`), and may be others.
        tags: ``[clients]`` a hash of each client's name, which keys its randomness.
        number: ``[clients]`` the number of each client in the whole log, of which these may be some.
        people: ``[users]`` the number of each user in the whole log.
    """

    log: Interactions
    seats: Tensor
    validation: Tensor
    test: Tensor
    consents: Mapping[str, Tensor]
    tags: Tensor
    number: Tensor
    people: Tensor

    @classmethod
    def phones(
        cls, split: Split, *, consent: float | Mapping[str, float] = 0.0, keys: Keys | None = None
    ) -> Clients:
        """One client per user.

        >>> from veilrec.datasets.synthetic import synthetic
        >>> clients = Clients.phones(synthetic(users=4, items=12).leave_one_out(), consent=0.5)
        >>> len(clients), clients.sizes, clients.name(0)
        (4, [1, 2, 2, 3], 'u0001')
        >>> clients.seats[:, 0], clients.consents["gender"][:, 0]
        (tensor([0, 1, 2, 3]), tensor([False,  True, False, False]))
        """
        seats = torch.arange(split.train.n_users)[:, None]
        return cls._seated(split, seats, id_hashes(split.train.user_ids), consent, keys)

    @classmethod
    def silos(
        cls, split: Split, n: int, *, consent: float | Mapping[str, float] = 0.0, keys: Keys | None = None
    ) -> Clients:
        """A few clients with many users each, seated by a keyed shuffle.

        >>> from veilrec.datasets.synthetic import synthetic
        >>> Clients.silos(synthetic(users=5, items=12).leave_one_out(), 2).seats
        tensor([[ 4,  3,  1],
                [ 2,  0, -1]])
        """
        users = split.train.n_users
        if not 1 <= n <= users:
            raise BadInput("data.silos", f"{n} silos for {users} users", f"choose a number from 1 to {users}")
        order = (keys or Keys.seed(0)).fold("silos").fold(id_hashes(split.train.user_ids)).value.argsort()
        seats = torch.full((n, -(-users // n)), -1)
        place = torch.arange(users)  # users are dealt like cards: silos differ by one user at most
        seats[place % n, place // n] = order
        tags = torch.tensor([hash_text(f"silo {k}") for k in range(n)])
        return cls._seated(split, seats.sort(dim=1, descending=True).values, tags, consent, keys)

    @classmethod
    def _seated(
        cls,
        split: Split,
        seats: Tensor,
        tags: Tensor,
        consent: float | Mapping[str, float],
        keys: Keys | None,
    ) -> Clients:
        log = split.train
        share = consent if isinstance(consent, Mapping) else dict.fromkeys(log.attributes, consent)
        draw = (keys or Keys.seed(0)).fold("consent").fold(id_hashes(log.user_ids)).uniform()  # [users]
        taken = seats >= 0
        consents = {name: (draw < share.get(name, 0.0))[seats] & taken for name in log.attributes}
        validation, test = (torch.where(taken, held[seats], -1) for held in (split.validation, split.test))
        return cls(
            log, seats, validation, test, consents, tags, torch.arange(len(seats)), torch.arange(log.n_users)
        )

    def only(self, clients: Tensor) -> Clients:
        """Some of the clients ``[c]``, ascending, with the log of their users alone; all items stay."""
        seats = self.seats[clients]
        users = seats[seats >= 0].sort().values
        place = torch.full((self.log.n_users,), -1, device=seats.device)
        place[users] = torch.arange(len(users), device=seats.device)
        return Clients(
            log=self.log.only(users),
            seats=torch.where(seats >= 0, place[seats.clamp(min=0)], -1),
            validation=self.validation[clients],
            test=self.test[clients],
            consents={name: given[clients] for name, given in self.consents.items()},
            tags=self.tags[clients],
            number=self.number[clients],
            people=self.people[users],
        )

    def __len__(self) -> int:
        return len(self.seats)

    @property
    def n_seats(self) -> int:
        """The number of users that one client has room for."""
        return self.seats.shape[1]

    def name(self, client: int) -> str:
        """The name of a client for people: the user's original id, or the number of the silo."""
        return (
            str(self.log.user_ids[int(self.seats[client, 0])])
            if self.n_seats == 1
            else f"silo {int(self.number[client])}"
        )

    def place_of(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """The client of each user ``[u]``, and the seat there; everybody has one."""
        taken = self.seats >= 0
        place = self.seats.new_zeros(self.log.n_users, 2)
        place[self.seats[taken]] = taken.nonzero()
        client, seat = place[users.to(place.device)].unbind(-1)
        return client, seat

    def to(self, device: str | torch.device) -> Clients:
        """The same clients with their data on another device."""

        def move(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device)
            return {k: move(v) for k, v in value.items()} if isinstance(value, Mapping) else value

        names = ("user", "item", "attributes", "features")
        log = replace(self.log, **{name: move(getattr(self.log, name)) for name in names})
        rest = {f.name: move(getattr(self, f.name)) for f in fields(self) if f.name != "log"}
        return Clients(log, **rest)

    @cached_property
    def sizes(self) -> list[int]:
        """Events of each client."""
        each = torch.where(self.seats >= 0, self.log.counts[self.seats.clamp(min=0)], 0)
        counts: list[int] = each.sum(1).tolist()
        return counts

    @cached_property
    def events(self) -> Events:
        """The events in the order of the clients, their seats and time."""
        return Events.of(self.log, self.seats)

    def touched(self, cohort: Tensor) -> tuple[Tensor, Tensor]:
        """The training events of some clients: ``[e]`` position · seats + seat, and ``[e]`` items."""
        counts = torch.tensor([self.sizes[k] for k in cohort.tolist()], device=cohort.device)
        client, place = ragged(counts)
        event = self.events.start[cohort][client] + place
        return client * self.n_seats + self.events.seat[event], self.events.item[event]

    def batch(
        self, cohort: Tensor, *, history: int, rows: Tensor, dtype: torch.dtype, later: Tensor | None = None
    ) -> Batch:
        """A cohort's facts before any step: a batch without examples, its item ids global.

        Histories are those of training; with ``later [c, seats]`` they end with that item, if it is one.
        """
        seats = self.seats[cohort]  # [c, seats]
        seat = seats.clamp(min=0)
        none = seats.new_zeros(len(cohort), 0)
        features = self.log.features
        width = 0 if features is None else features.shape[1]
        return Batch(
            rows=rows,
            user=none,
            item=none,
            negative=none[:, :, None],
            weight=none.to(dtype),
            history=ending(self.events.history(seats, history), later),
            features=seat.new_zeros(*seat.shape, width, dtype=dtype)
            if features is None
            else features[seat].to(dtype),
            attributes={
                name: torch.where(seats >= 0, a[seat], -1) for name, a in self.log.attributes.items()
            },
            consents={name: c[cohort] for name, c in self.consents.items()},
            rest=seats.new_zeros(*seats.shape, 0, dtype=dtype),
            taken=seats >= 0,
        )


def ending(history: Tensor, later: Tensor | None) -> Tensor:
    """Histories ``[c, seats, t]`` whose last item is one that came later ``[c, seats]``; -1 is none.

    >>> ending(torch.tensor([[[-1, 3]], [[4, 5]]]), torch.tensor([[7], [-1]])).tolist()
    [[[3, 7]], [[4, 5]]]
    """
    if later is None or not history.shape[-1]:
        return history
    moved = torch.cat([history[..., 1:], later[..., None]], -1)
    return torch.where(later[..., None] >= 0, moved, history)


class Events(NamedTuple):
    """The events of all clients as flat columns, with an index for drawing untouched items quickly.

    ``gap`` holds, within each user's block, its items in ascending order less their rank: how many
    untouched items lie below each touched one. The r-th untouched item is then ``r`` plus the number of
    gaps that do not exceed ``r``, which `searchsorted` answers without rejection.
    """

    start: Tensor  # [clients + 1] where each client's events begin
    item: Tensor  # [events] global id
    seat: Tensor  # [events]
    rank: Tensor  # [events] position among the events of its user
    touched: Tensor  # [events] number of events of its user
    gap: Tensor  # [events]
    user_start: Tensor  # [users] where each user's events begin
    user_count: Tensor  # [users]

    @classmethod
    def of(cls, log: Interactions, seats: Tensor) -> Events:
        """Lay out a log by seats."""
        device = log.user.device
        client, seat = (seats >= 0).nonzero(as_tuple=True)
        users = seats[client, seat]  # in the order of clients and seats
        place = torch.empty(log.n_users, dtype=torch.int64, device=device)
        place[users] = torch.arange(len(users), device=device)
        order = place[log.user].argsort(stable=True)  # events stay in time order within a user
        user, item = log.user[order], log.item[order]
        count = torch.bincount(log.user, minlength=log.n_users)
        first = torch.zeros_like(count)
        first[users] = starts(count[users])
        rank = torch.arange(len(user), device=device) - first[user]
        by_item = (place[user] * (log.n_items + 1) + item).sort().values - place[user] * (log.n_items + 1)
        per_client = torch.zeros(len(seats) + 1, dtype=torch.int64, device=device)
        per_client[1:] = torch.zeros_like(per_client[1:]).scatter_add_(0, client, count[users]).cumsum(0)
        seat_of = torch.empty_like(place)
        seat_of[users] = seat
        return cls(per_client, item, seat_of[user], rank, count[user], by_item - rank, first, count)

    def history(self, seats: Tensor, length: int) -> Tensor:
        """``[c, seats, length]`` each user's latest items in time order, -1 in front of shorter ones.

        A length of -1 is that of the longest.
        """
        if length < 0:
            length = int(torch.where(seats >= 0, self.user_count[seats.clamp(min=0)], 0).max())
        if length == 0:
            return seats.new_full((*seats.shape, 0), -1)
        user = seats.clamp(min=0)
        back = torch.arange(length, device=seats.device) - length  # -length … -1
        count = torch.where(seats >= 0, self.user_count[user], 0)[..., None]
        index = self.user_start[user][..., None] + count + back
        return torch.where(count + back >= 0, self.item[index.clamp(min=0)], -1)
