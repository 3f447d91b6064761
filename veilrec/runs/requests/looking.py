"""Looking: what attackers find in a run before and after it forgot, gathered before anything old is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from veilrec.engine.evaluation import Scored
from veilrec.engine.serving import scorer
from veilrec.engine.workers import workers
from veilrec.errors import VeilrecError
from veilrec.lab.forgetting.case import LISTED, Erasure, ListPair
from veilrec.lab.forgetting.receipt import receipt
from veilrec.lab.trials import People
from veilrec.metrics.ranking import top
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.runs.erasing import user_vectors
from veilrec.runs.requests.choosing import Choice

__all__ = ["LATER", "Side", "Witness", "bare_receipt", "without_counts"]

LATER = (1, 5, 20)  # rounds of training on, after which vectors are looked at again
COUNTED = "counts"  # in a receipt: users by class, those who asked among them
KINDS = ("unseen", "all")  # what lists may hold
BLOCK = 256  # users whose lists are made at once


@dataclass(frozen=True)
class Side:
    """What a run shows in one state.

    Attributes:
        vectors: ``[n, width]`` of users.
        lists: By what a list may hold, ``[n, LISTED]`` items.
        scored: The usefulness of each user who is tested.
    """

    vectors: Tensor
    lists: Mapping[str, Tensor]
    scored: Scored


@dataclass(frozen=True)
class Witness:
    """Who looks at a run before and after a request.

    Attributes:
        federation: The run's.
        people: The truth about the users of its log.
        users: ``[n]`` those who have a vector.
        weights: The weights that are one.
    """

    federation: Federation
    people: People
    users: Tensor
    weights: list[str]

    def side(self, state: State) -> Side:
        """Everything that is looked at, as it is now."""
        vectors = user_vectors(self.federation.fleet, self.weights)[1]
        return Side(vectors, self._lists(state), self.federation.evaluate(state, "test"))

    def _lists(self, state: State) -> dict[str, Tensor]:
        """The lists that each user would be shown, with and without items that were touched."""
        federation, log = self.federation, self.federation.clients.log
        seats = federation.clients.seats
        found = {kind: torch.full((len(seats.flatten()), LISTED), -1) for kind in KINDS}
        clients = torch.arange(len(seats), device=seats.device)
        with workers(1) as pool:
            score = scorer(federation.fleet, federation.at(state), pool)
            for some in clients.split(max(1, BLOCK // seats.shape[1])):
                scores = score(some, None).cpu().double().flatten(0, 1)  # [c · seats, items]
                who = seats[some].flatten().cpu()
                row, item = _touched(who, log.user.cpu(), log.item.cpu())
                for kind in KINDS:
                    own = (row, item) if kind == "unseen" else (row[:0], item[:0])
                    found[kind][who[who >= 0]] = top(scores, *own, LISTED)[who >= 0]
        return {kind: shown[self.users] for kind, shown in found.items()}

    def later(self, state: State) -> dict[int, Tensor]:
        """Vectors after more rounds of training, from a state and what devices have now; both are used up."""
        found: dict[int, Tensor] = {}
        try:
            for then, _ in self.federation.rounds(state, until=state.round + max(LATER)):
                if (number := then.round - state.round) in LATER:
                    found[number] = self._all_vectors()
        except VeilrecError:  # a loss that diverges, say: the request is done all the same
            return found
        return found

    def _all_vectors(self) -> Tensor:
        """Those of the users at hand; somebody may have begun to take part meanwhile."""
        users, vectors = user_vectors(self.federation.fleet, self.weights)
        return vectors[torch.searchsorted(users, self.users)]

    def told(
        self,
        choice: Choice,
        before: Side,
        after: Side,
        later: Mapping[int, Tensor],
        facts: Mapping[str, Any],
        progress: Callable[[str, int, int], None] | None = None,
    ) -> dict[str, Any]:
        """The receipt: the facts, and what attackers find on either side."""
        people, log = _some(self.people, self.users, choice.request.asks), self.federation.clients.log
        row, item = _touched(self.users, log.user.cpu(), log.item.cpu())
        erasure = Erasure(
            before.vectors,
            after.vectors,
            people,
            list(choice.request.labels),
            choice.eraser,
            choice.request.lends,
            {kind: ListPair(before.lists[kind], after.lists[kind]) for kind in KINDS},
            (row, item),
            later,
            {name: self._pair(name, before.scored, after.scored) for name in before.scored.values},
        )
        return receipt(erasure, facts, progress=progress)

    def _pair(self, name: str, before: Scored, after: Scored) -> tuple[Tensor, Tensor]:
        whole = [torch.full((len(self.people.tags),), torch.nan, dtype=torch.float64) for _ in range(2)]
        for values, scored in zip(whole, (before, after), strict=True):
            values[scored.user.cpu()] = scored.values[name].cpu().double()
        return whole[0][self.users], whole[1][self.users]


def bare_receipt(
    before: Tensor, after: Tensor, people: People, choice: Choice, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The receipt of vectors of which nothing else is known."""
    names, lends = list(choice.request.labels), choice.request.lends
    return receipt(Erasure(before.float(), after.float(), people, names, choice.eraser, lends), facts)


def without_counts(told: Any) -> Any:
    """A receipt without users by class: less the classes that are known still, they are those who asked."""
    if isinstance(told, dict):
        return {name: without_counts(value) for name, value in told.items() if name != COUNTED}
    return [without_counts(value) for value in told] if isinstance(told, list) else told


def _some(people: People, users: Tensor, asks: Tensor | None) -> People:
    """The truth about some of the users."""
    return replace(
        people,
        labels={name: label[users] for name, label in people.labels.items()},
        tags=people.tags[users],
        values={name: value[users] for name, value in people.values.items()},
        lots=None if people.lots is None else people.lots[users],
        consents={name: one[users] for name, one in people.consents.items()},
        places=None,
        asks=asks,
    )


def _touched(users: Tensor, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    """What some users touched: ``[e]`` the row of each, and ``[e]`` the item."""
    most = int(torch.cat([users, user]).max()) + 1
    place = torch.full((most + 1,), -1)
    place[users] = torch.arange(len(users))  # an empty seat, -1, is the last place, which nobody has
    row = place[user]
    return row[row >= 0], item[row >= 0]
