"""Two stages: sums in two rounds, and no training at all.

Paper: none; it stands for federated linear recommenders. First devices send which items they have, and the
server chooses the most frequent; then they send how those go together, and the server makes a table of items
of that. What is asked for in the second round, down to its shape, depends on the answer to the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Part, Scope
from veilrec.clients import Batch
from veilrec.examples import Draw, Examples
from veilrec.model import Device, Recommender
from veilrec.protocol import Protocol, Pulse, Server, Shape, State, Trained
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import Fold, Letter, Uploads

__all__ = ["Neighbours", "TwoStage"]


class Neighbours(Recommender):
    """A user is the mean of the vectors of their items.

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
    """

    def __init__(self, n_items: int, n_seats: int = 1, *, dim: int = 3) -> None:
        super().__init__()
        self.parts = {"item": Part(Scope.SHARED, rows="item")}
        self.dim, self.history = dim, -1
        self.item = nn.Parameter(torch.empty(n_items, dim))

    def loss(self, device: Device) -> Tensor:
        raise NotImplementedError("nothing is trained")

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.represent(batch)
        return user @ self.item.T if items is None else (user[:, None] * self.item[items]).sum(-1)

    def represent(self, batch: Batch) -> Tensor:
        there = (batch.history >= 0)[..., None]
        item = torch.where(there, self.item[batch.history.clamp(min=0)], 0.0)
        return item.sum(1) / there.sum(1).clamp(min=1)


@dataclass(frozen=True)
class TwoStage(Protocol):
    """Count, choose, count again.

    Attributes:
        share: How frequent an item must be to be chosen, as a share of the most frequent one.
    """

    share: float = 0.6

    def examples(self, model: Recommender, draw: Draw) -> Examples:
        return draw.portion(history=-1)

    def learn(
        self, model: Recommender, examples: Examples, letter: Letter, own: Params, keys: Keys
    ) -> Trained:
        known, n_items = examples.known, len(model.get_parameter("item"))
        history = known.history.flatten(1)  # [c, t] rows of the local tables
        item = known.rows.gather(1, history.clamp(min=0))
        held = torch.zeros(len(item), n_items + 1, dtype=torch.float64)
        held.scatter_(1, torch.where(history >= 0, item, n_items), 1)
        found = {"counts": held[:, :-1]}
        if letter.round:
            chosen = held[:, letter.all["chosen"][: width(letter)]]
            found = {"pairs": chosen[:, :, None] * held[:, None, :-1]}
        nothing = torch.zeros(len(item), dtype=known.weight.dtype)
        return Trained({**own, **found}, {}, {}, nothing)

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        return {name: trained[name] for name in ("counts", "pairs") if name in trained}

    def schema(
        self, model: Recommender, sent: Letter | None = None, dtype: torch.dtype = torch.float32
    ) -> Schema:
        n = len(model.get_parameter("item"))
        most = {"counts": Spec((n,), torch.float64), "pairs": Spec((n, n), torch.float64)}
        if sent is None:
            return most
        return {"pairs": Spec((width(sent), n), torch.float64)} if sent.round else {"counts": most["counts"]}

    def partial_schema(self, model: Recommender, sent: Letter) -> Schema:
        return self.schema(model, sent)

    def letter(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        n = len(model.get_parameter("item"))
        return {**super().letter(model, dtype), "chosen": Spec((n,), torch.int64, kind="items", below=n)}

    def fold(self, model: Recommender, sent: Letter, partial: Message, uploads: Uploads) -> Message:
        sums: Message = {n: v.sum(0) for n, v in uploads.values.items() if isinstance(v, Tensor)}
        return self.merge(partial, sums)

    def make_server(self, shape: Shape) -> Server:
        return Choosing(self, shape)


class Choosing(Server):
    """The server of `TwoStage`."""

    def __init__(self, protocol: TwoStage, shape: Shape) -> None:
        self.protocol, self.shape = protocol, shape

    def start(self, keys: Keys) -> State:
        item = self.shape.model.initial("item", keys.fold("item"))
        nobody = torch.full((len(item),), -1)
        return State(0, self.shape.cast({"item": item}), {"chosen": nobody})

    def send(self, state: State, cohort: Tensor, keys: Keys) -> Letter:
        return Letter({**state.server, **state.memory}, {}, state.posts.values, state.round)

    def finish(self, state: State, fold: Fold, keys: Keys, pulse: Pulse) -> State:
        (total,) = fold.partial.values()
        assert isinstance(total, Tensor)
        if not state.round:
            often = total >= self.protocol.share * total.max()
            order = torch.cat([often.nonzero().squeeze(1), (~often).nonzero().squeeze(1)])
            chosen = torch.where(torch.arange(len(order)) < often.sum(), order, -1)
            return replace(state, round=1, memory={"chosen": chosen})
        item = torch.linalg.svd(total, full_matrices=False).Vh[: self.shape.model.dim].T
        return replace(state, round=state.round + 1, server=self.shape.cast({"item": item.contiguous()}))


def width(letter: Letter) -> int:
    """How many items a letter names."""
    return int((letter.all["chosen"] >= 0).sum())
