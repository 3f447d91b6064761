"""A small PTF-FSR: devices and server exchange sequences, and no weight of any model ever travels.

Paper: Yuan et al., "PTF-FSR: A Parameter Transmission-Free Federated Sequential Recommender System", ACM TOIS
2024, of which this keeps the shape alone. A device trains a model of its own, on its history and on what came
down with soft labels, and sends item numbers. The server keeps what it got last from each, trains a model of
its own on that, and sends each device items that might follow, with how sure it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Rows
from veilrec.examples import Draw, Examples
from veilrec.model import Device, Recommender
from veilrec.protocol import Protocol, Pulse, Server, Shape, State
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import EACH, Fold, Letter, Uploads

__all__ = ["PTFFSR"]

MANY = 1 << 31  # clients, at most: as which rows a buffer numbers them


@dataclass(frozen=True)
class PTFFSR(Protocol):
    """Sequences up, items with soft labels down.

    Attributes:
        kept: Share of a history that is sent; the rest of it stays behind.
        many: How many items come down to each device.
        dim: Width of the server's vectors.
        steps: Of the server's optimiser in a round.
        lr: Its rate.
    """

    kept: float = 0.7
    many: int = 3
    dim: int = 6
    steps: int = 4
    lr: float = 0.05

    partial_is_sum = False

    def examples(self, model: Recommender, draw: Draw) -> Examples:
        items = draw.letter.each["items"]
        found = draw.sequences(model.history, also=items)
        return found.bringing(next=found.local(items), sure=draw.letter.each["sure"])

    def objective(self, model: Recommender, device: Device) -> Tensor:
        there, row = device.batch.more["next"] >= 0, device.batch.more["next"].clamp(min=0)
        score = model.scores(device.batch, row[None])[0]
        gap = F.binary_cross_entropy_with_logits(score, device.batch.more["sure"], reduction="none")
        return model.loss(device) + (there * gap).sum() / there.sum().clamp(min=1)

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        return {"sequence": self._some(device)}

    def query(self, model: Recommender, device: Device) -> Message:
        return {"latest": self._some(device)}

    def _some(self, device: Device) -> Tensor:
        """``[t]`` a user's latest items, less those that chance keeps back."""
        history = device.batch.history[0]  # rows of the local table
        item = device.batch.rows[history.clamp(min=0)]
        stays = (history < 0) | (device.keys.fold("kept").uniform(len(history)) > self.kept)
        return torch.where(stays, -1, item)

    def schema(
        self, model: Recommender, sent: Letter | None = None, dtype: torch.dtype = torch.float32
    ) -> Schema:
        return {"sequence": items_of(model, model.history)}

    def query_schema(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        return {"latest": items_of(model, model.history)}

    def partial_schema(self, model: Recommender, sent: Letter) -> Schema:
        return {"sequence": items_of(model, model.history)._replace(table=MANY)}

    def letter(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        sure = Spec((self.many,), dtype, kind="labels")
        told = {EACH + "items": items_of(model, self.many), EACH + "sure": sure}
        return {**super().letter(model, dtype), **told}

    def fold(self, model: Recommender, sent: Letter, partial: Message, uploads: Uploads) -> Message:
        sequence = uploads.values["sequence"]
        assert isinstance(sequence, Tensor)
        return self.merge(partial, {"sequence": Rows(uploads.cohort, sequence)})

    def merge(self, partial: Message, other: Message) -> Message:
        parts = [one["sequence"] for one in (partial, other) if one]
        row = torch.cat([part.row for part in parts if isinstance(part, Rows)])
        value = torch.cat([part.value for part in parts if isinstance(part, Rows)])
        order = row.argsort()
        return {"sequence": Rows(row[order], value[order])}

    def make_server(self, shape: Shape) -> Server:
        return Central(self, shape)


class Central(Server):
    """The server of `PTFFSR`: a module and an optimiser, filled from the state before each use."""

    def __init__(self, protocol: PTFFSR, shape: Shape) -> None:
        self.protocol, self.shape = protocol, shape
        n = len(shape.model.get_parameter("item"))
        self.module = nn.ParameterDict({"item": torch.zeros(n, protocol.dim, dtype=shape.dtype)})
        self.optimiser = torch.optim.Adam(self.module.values(), lr=protocol.lr)

    def start(self, keys: Keys) -> State:
        item = 0.1 * keys.fold("item").normal(*self.module["item"].shape)
        unknown = torch.full((self.shape.n_clients, self.shape.model.history), -1)
        moments = {f"adam/{name}": torch.zeros_like(item) for name in ("exp_avg", "exp_avg_sq")}
        memory = {"sequence": unknown, **moments, "adam/step": torch.zeros(())}
        return State(0, self.shape.cast({"item": item}), self.shape.cast(memory))

    def send(self, state: State, cohort: Tensor, keys: Keys) -> Letter:
        sequence = state.memory["sequence"][cohort]
        score = torch.where((sequence >= 0).any(1)[:, None], self._scores(state, sequence), -torch.inf)
        best = score.topk(self.protocol.many)
        items = torch.where(best.values.isfinite(), best.indices, -1)
        return Letter({}, {"items": items, "sure": best.values.sigmoid()}, state.posts.values, state.round)

    def finish(self, state: State, fold: Fold, keys: Keys, pulse: Pulse) -> State:
        sent = fold.partial["sequence"]
        assert isinstance(sent, Rows)
        sequence = state.memory["sequence"].index_copy(0, sent.row, sent.value)
        self._fill(state)
        n = len(self.module["item"])
        for step in range(self.protocol.steps):
            pulse(step, self.protocol.steps)
            self.optimiser.zero_grad()
            there = sequence[:, 1:] >= 0
            untouched = keys.fold(step).integers(n, *there.shape)
            state_of = self._means(self.module["item"], sequence)[:, None]
            touched = (state_of * self.module["item"][sequence[:, 1:].clamp(min=0)]).sum(-1)
            against = (state_of * self.module["item"][untouched]).sum(-1)
            (there * (F.softplus(-touched) + F.softplus(against))).sum().backward()
            self.optimiser.step()
        (moments,) = self.optimiser.state.values()
        memory = {f"adam/{name}": value.clone() for name, value in moments.items()}
        server = {"item": self.module["item"].detach().clone()}
        return replace(state, round=state.round + 1, server=server, memory={"sequence": sequence, **memory})

    def scores(self, state: State, query: Message, items: Tensor | None) -> Tensor:
        latest = query["latest"]
        assert isinstance(latest, Tensor)
        score = self._scores(state, latest)[:, None]
        return score if items is None else score.gather(2, items)

    def _fill(self, state: State) -> None:
        with torch.no_grad():
            self.module["item"].copy_(state.server["item"])
        names = ("step", "exp_avg", "exp_avg_sq")
        self.optimiser.state[self.module["item"]] = {
            name: state.memory[f"adam/{name}"].clone() for name in names
        }

    def _scores(self, state: State, sequence: Tensor) -> Tensor:
        item = state.server["item"]
        return self._means(item, sequence) @ item.T

    def _means(self, item: Tensor, sequence: Tensor) -> Tensor:
        there = (sequence >= 0)[..., None]
        return (there * item[sequence.clamp(min=0)]).sum(1) / there.sum(1).clamp(min=1)


def items_of(model: Recommender, many: int) -> Spec:
    """So many numbers of items, -1 for none."""
    return Spec((many,), torch.int64, kind="items", below=len(model.get_parameter("item")))
