"""Evaluation: how good the lists are that users are shown, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys, below
from veilrec.base.limits.bounds import Bounds, hold, takes
from veilrec.base.rows import starts, within
from veilrec.clients import Clients
from veilrec.engine.workers import Workers
from veilrec.errors import BadInput, nearest
from veilrec.interactions import id_hashes
from veilrec.metrics.ranking import METRICS, ranking

__all__ = ["Evaluation", "Score", "Scored", "candidates", "check_candidates", "evaluate", "popularity"]

BLOCK = 64  # users scored at a time: memory only, never results
Score = Callable[[Tensor, Tensor | None], Tensor]  # clients [c] and items [c, seats, n] → [c, seats, n]


@takes("evaluation")
@dataclass(frozen=True)
class Evaluation:
    """The protocol of a utility table; two tables with different ones must not be merged.

    Attributes:
        candidates: Every item the user has not touched (0), or this many of them, drawn once.
        metrics, ks: What is computed, and at which lengths of the list.
        select: The validation metric by which a state is chosen.
        validation: Whether the event before the last is held out for that. Without, it is trained on, nothing
            is looked at before the end, and the last round is what is tested: choose `plan.rounds` elsewhere.
    """

    candidates: Annotated[int, Bounds(0, 10_000_000)] = 0
    metrics: tuple[str, ...] = ("hr", "ndcg", "mrr", "precision", "recall")
    ks: tuple[Annotated[int, Bounds(1, 1_000_000)], ...] = (5, 10, 20)
    select: str = "ndcg@10"
    validation: bool = True

    def __post_init__(self) -> None:
        hold(self, "evaluation")
        for name in self.metrics:
            if name not in METRICS:
                raise BadInput("evaluation.metrics", f'no metric "{name}"', nearest(name, METRICS))
        if not self.ks:
            raise BadInput("evaluation.ks", "an empty list", "give at least one number from 1 upwards")
        known = [f"{name}@{k}" for name in self.metrics for k in self.ks]
        if self.select not in known:
            raise BadInput("evaluation.select", f'no metric "{self.select}"', nearest(self.select, known))

    def describe(self) -> str:
        """The protocol in words, for the head of a table."""
        pool = f"{self.candidates} untouched items drawn once" if self.candidates else "all untouched items"
        state = "" if self.validation else "; all but the test item is trained on, the last round is tested"
        return f"leave-one-out by time; candidates: {pool}; ties by expectation{state}"


class Scored(NamedTuple):
    """The metrics of a round or a test, user by user."""

    user: Tensor  # [users tested]
    values: dict[str, Tensor]  # metric@k → [users tested], float64

    def means(self) -> dict[str, float]:
        """The mean over users."""
        return {name: float(value.mean()) for name, value in self.values.items()}


def evaluate(
    evaluation: Evaluation, clients: Clients, which: str, score: Score, pool: Tensor | None, workers: Workers
) -> Scored:
    """Rank every user's held-out item among the candidates, block by block."""
    held = clients.test if which == "test" else clients.validation
    someone = (held >= 0).any(1).nonzero().squeeze(1)
    if not len(someone):
        raise BadInput("data", f"no user has a {which} item", "give users at least three events")

    # Written in place: small tensors that outlive a block would pin the memory of its large ones.
    found = held.new_full((2, clients.log.n_users), -1)

    def judge(cohort: Tensor) -> None:
        target = held[cohort].reshape(-1)  # [u] with u = c · seats
        tested = (target >= 0).nonzero().squeeze(1)
        if pool is None:
            scores = _finite(score(cohort, None)).flatten(0, 1)
            greater, tied = _among_all(scores, clients, cohort, target.clamp(min=0), which)
        else:
            others = pool[clients.seats[cohort].clamp(min=0)]  # [c, seats, n]
            items = torch.cat([held[cohort].clamp(min=0)[..., None], others], -1)
            scores = _finite(score(cohort, items)).flatten(0, 1)
            greater = (scores[:, 1:] > scores[:, :1]).sum(1)
            tied = (scores[:, 1:] == scores[:, :1]).sum(1)
        found[:, clients.seats[cohort].reshape(-1)[tested]] = torch.stack([greater[tested], tied[tested]])

    for _ in workers.map(judge, someone.split(max(1, BLOCK // clients.n_seats))):
        pass
    user = (found[0] >= 0).nonzero().squeeze(1).cpu()
    greater, tied = found.cpu()[:, user]
    return Scored(user, ranking(greater, tied, evaluation.metrics, evaluation.ks))


def _among_all(
    scores: Tensor, clients: Clients, cohort: Tensor, target: Tensor, which: str
) -> tuple[Tensor, Tensor]:
    """``scores [u, items]`` to how many untouched items rank above and beside the target, ``[u]`` each."""
    row, item = clients.touched(cohort)
    if which == "test":  # by then the validation item is history
        before = clients.validation[cohort].reshape(-1)
        known = (before >= 0).nonzero().squeeze(1)
        row, item = torch.cat([row, known]), torch.cat([item, before[known]])
    own = scores.gather(1, target[:, None])  # [u, 1]
    greater, equal = (scores > own).sum(1), (scores == own).sum(1)
    seen = scores[row, item]
    greater -= torch.zeros_like(greater).scatter_add_(0, row, (seen > own[row, 0]).long())
    equal -= torch.zeros_like(equal).scatter_add_(0, row, (seen == own[row, 0]).long())
    return greater, equal - 1


def _finite(scores: Tensor) -> Tensor:
    if not bool(scores.isfinite().all()):
        raise BadInput("model", "a score is not finite", "the run has diverged: lower the learning rate")
    return scores


def popularity(counts: Tensor, n_seats: int) -> Score:
    """The floor of every table: everybody is shown what most users touched, by ``counts [items]``."""
    weight = counts.double()

    def score(cohort: Tensor, items: Tensor | None) -> Tensor:
        return weight.expand(len(cohort), n_seats, -1) if items is None else weight[items]

    return score


def check_candidates(clients: Clients, n: int) -> Tensor:
    """``[users]`` how many items each user has touched, those that are held out among them.

    Raises:
        BadInput: Where somebody has not left so many untouched ones.
    """
    log, count = clients.log, clients.log.counts
    for held in (clients.validation, clients.test):
        count = count.index_add(0, clients.seats[held >= 0], torch.ones_like(held[held >= 0]))
    left, who = int(log.n_items - count.max()), log.user_ids[int(count.argmax())]
    if left < n:
        what = f"{n} asked for, user {who} has {left} untouched items"
        raise BadInput("evaluation.candidates", what, "ask for fewer")
    return count


def candidates(clients: Clients, n: int, split_seed: int = 0) -> Tensor:
    """``[users, n]`` distinct items that each user never touched; equal for all seeds of an experiment."""
    log, count = clients.log, check_candidates(clients, n)
    seat = clients.seats >= 0
    held = [(clients.seats[seat & (h >= 0)], h[seat & (h >= 0)]) for h in (clients.validation, clients.test)]
    user = torch.cat([log.user, *(u for u, _ in held)])
    pair = (user * (log.n_items + 1) + torch.cat([log.item, *(i for _, i in held)])).sort().values
    owner = torch.div(pair, log.n_items + 1, rounding_mode="floor")
    gap = pair - within(owner, count)  # as in `clients.Events`
    keys = Keys.seed(split_seed).fold("candidates").fold(id_hashes(log.user_ids))
    place = distinct(
        Keys(keys.value.to(pair.device)), log.n_items - count, n
    )  # [users, n] places among the untouched items
    offset = torch.arange(log.n_users, device=pair.device)[:, None] * (log.n_items + 1)
    return place + torch.searchsorted(gap, offset + place, right=True) - starts(count)[:, None]


def distinct(keys: Keys, high: Tensor, n: int) -> Tensor:
    """``[c, n]`` distinct whole numbers under ``high [c]``, by Floyd's algorithm: n draws, none rejected."""
    chosen = torch.full((len(high), n), -1, device=high.device)
    for k in range(n):
        top = high - n + k  # draw from 0 … top; if that is taken, take top itself, which cannot be
        draw = below(keys.at(torch.tensor(k, device=high.device)), top + 1)
        chosen[:, k] = torch.where((chosen == draw[:, None]).any(1), top, draw)
    return chosen
