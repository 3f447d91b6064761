"""FedAvg: upload weights or gradients, average them, send the result back.

Paper: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017; server optimisers after Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
Every recommender named "Fed…" is a model run by this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Amount
from veilrec.base.params import Message, Params, Rows, Scope, part_of
from veilrec.base.rows import along
from veilrec.base.steps import Rates, Stepper, every_rate, rate_of
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender
from veilrec.protocol import Protocol, Pulse, Server, Shape, State
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import Fold, Letter, Uploads

__all__ = ["FedAvg"]

CLIENTS = "clients"  # the weight of all uploads together
MOVED = "moved/"  # before the name of a weight that a defence trains: how many devices moved it
TOUCHED = "touched/"  # before the name of a table: how many devices touched each row


@dataclass(frozen=True)
class FedAvg(Protocol):
    """Average the SHARED parts; the EXPOSED ones are only seen.

    Helpers are averaged over the devices that moved them, whatever the server does with the rest: their steps
    are the defence's. Those that a defence spares leave them as they came.

    One round by hand, of three counters and two clients: the first adds 1 to items 0 and 1, the second to
    item 1 alone, and pads its upload with row -1.

    >>> from veilrec.models.popularity import Popularity
    >>> from veilrec.protocol import ignore
    >>> from veilrec.wire.uploads import Posts
    >>> protocol, model, keys, cohort = FedAvg(), Popularity(3), Keys.seed(0), torch.arange(2)
    >>> server = protocol.make_server(Shape(model, n_clients=2))
    >>> state = server.start(keys)
    >>> letter = server.send(state, cohort, keys)
    >>> letter.all["item"].tolist() == [0.0, 0.0, 0.0]
    True
    >>> rows = Rows(torch.tensor([[0, 1], [1, -1]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    >>> partial = protocol.fold(model, letter, {}, Uploads(cohort, {"item": rows}))
    >>> server.finish(state, Fold(partial, Posts.none(), {}), keys, ignore).server
    {'item': tensor([0.5000, 1.0000, 0.0000])}

    Attributes:
        sends: Trained weights, or the gradient of the client's own mean loss at the weights received.
        weigh: Mean over all clients of the round, over those that touched a row, or by number of examples.
        server: The server takes the mean as it is (``none``), or steps along it (``sgd``, ``adam``).
        server_lr: The server's rate, one for all or by part.
        server_halves: How many rounds it takes that rate to fall, smoothly, to half of what it was; one for
            all or by part, 0 for a rate that stays. A part that is trained against another, as under
            FedAU², comes to rest if it slows down and the other does not.
    """

    packs_as_is: ClassVar[bool] = True

    sends: Literal["weights", "gradients"] = "weights"
    weigh: Literal["clients", "touched", "examples"] = "clients"
    server: Literal["none", "sgd", "adam"] = "none"
    server_lr: Rates = 1.0
    server_halves: Amount | Mapping[str, Amount] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server == "none" and any(every_rate(self.server_halves)):
            fix = 'set protocol.server to "sgd" or "adam"'
            raise BadInput("protocol.server_halves", "a server that only averages has no rate", fix)
        if self.sends == "gradients" and self.server == "none":
            raise BadInput(
                "protocol.server", "gradients need a server that steps", 'set it to "sgd" or "adam"'
            )

    @property
    def sends_gradients(self) -> bool:
        return self.sends == "gradients"

    @property
    def accepts_sums(self) -> bool:
        return self.sends_gradients and self.weigh == "clients"

    @property
    def needs_examples(self) -> bool:
        return self.weigh == "examples"

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        message: Message = {}
        for name in model.names(Scope.SHARED, Scope.EXPOSED):
            part = model.parts[part_of(name)]
            measured = part.scope is Scope.SHARED and self.sends_gradients
            value = gradient[name] if measured else trained[name]
            message[name] = Rows(device.batch.rows, value) if part.rows == "item" else value
        return message

    def fold(self, model: Recommender, sent: Letter, partial: Message, uploads: Uploads) -> Message:
        """Sums of changes in float64 and in the order of the chunks: the number of workers changes no bit."""
        examples = uploads.values["examples"] if self.needs_examples else torch.ones_like(uploads.cohort)
        assert isinstance(examples, Tensor)
        share = examples.double()
        _add(partial, CLIENTS, share.sum())
        for name, total in uploads.sums.items():
            _add(partial, name, total.to(torch.float64, copy=True))
        for name in model.names(Scope.SHARED):
            if name in uploads.sums:
                continue
            value, server = uploads.values[name], sent.all[name]
            if isinstance(value, Rows):
                self._fold_rows(partial, name, server, value, share)
                continue
            value, base = self._based(value, server)
            _add(partial, name, _less(self._weighed(value, share).sum(0), base, share.sum()))
            if model.parts[part_of(name)].helper:
                moved = share * (value != (0 if base is None else base)).flatten(1).any(1)
                _add(partial, MOVED + name, moved.sum())
        return partial

    def _fold_rows(self, partial: Message, name: str, server: Tensor, upload: Rows, share: Tensor) -> None:
        """Add the rows of a chunk up in float64, so that how clients are grouped does not matter."""
        value, base = self._based(upload.value, server, upload.row)
        place = torch.where(upload.row < 0, len(server), upload.row).flatten()  # padding: a row nobody reads
        wide = self._weighed(value, share).flatten(0, 1)
        total = wide.new_zeros(len(server) + 1, *server.shape[1:])
        total.scatter_add_(0, along(place, wide).expand_as(wide), wide)
        each = share.repeat_interleave(upload.row.shape[1])
        weight = torch.bincount(place, each, minlength=len(server) + 1)[:-1]
        _add(partial, name, _less(total[:-1], base, along(weight, server)))
        if self.weigh == "touched":
            _add(partial, TOUCHED + name, weight)

    def _based(
        self, value: Tensor, server: Tensor, row: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The values to sum, and what is taken off the sum for each upload to have the change.

        Float32 weights add up in float64 without rounding, so the server's are taken off the sum: one walk
        less through large tables. Float64 weights do not, and what nobody moved must not move at all.
        """
        if self.sends_gradients:
            return value, None
        if server.dtype is not torch.float64:
            return value, server
        sent = server if row is None else server[row.clamp(min=0)]
        return value - sent, None

    def _weighed(self, value: Tensor, share: Tensor) -> Tensor:
        wide = value.double()
        return wide * along(share, wide) if self.weigh == "examples" else wide

    def partial_schema(self, model: Recommender, sent: Letter) -> Schema:
        specs = {CLIENTS: Spec((), torch.float64, kind="count")}
        for name in model.names(Scope.SHARED):
            part, shape = model.parts[part_of(name)], tuple(model.get_parameter(name).shape)
            by_row = part.rows == "item"
            specs[name] = Spec(shape[by_row:], torch.float64, shape[0] if by_row else None)
            if by_row and self.weigh == "touched":
                specs[TOUCHED + name] = Spec((), torch.float64, shape[0], kind="count")
            if part.helper:
                specs[MOVED + name] = Spec((), torch.float64, kind="count")
        return specs

    def make_server(self, shape: Shape) -> Server:
        return Averaging(self, shape)


class Averaging(Server):
    """The server of `FedAvg`: it takes the mean, or steps along it."""

    def __init__(self, protocol: FedAvg, shape: Shape) -> None:
        self.protocol, self.shape = protocol, shape

    def start(self, keys: Keys) -> State:
        model = self.shape.model
        server = {name: model.initial(name, keys.fold(name)) for name in model.names(Scope.SHARED)}
        lone = {name: weight[None] for name, weight in server.items()}  # the server is a cohort of one
        memory = self._stepper(lone, 0).fresh(lone)
        return State(0, self.shape.cast(server), self.shape.cast(memory))

    def send(self, state: State, cohort: Tensor, keys: Keys) -> Letter:
        return Letter(state.server, {}, state.posts.values, state.round)

    def finish(self, state: State, fold: Fold, keys: Keys, pulse: Pulse) -> State:
        partial: Params = {name: value for name, value in fold.partial.items() if isinstance(value, Tensor)}
        changes = {name: self._mean(partial, name) for name in state.server if name in partial}
        averages = self.protocol.server == "none"
        taken = {n: changes.pop(n) for n in [*changes] if averages or MOVED + n in partial}
        server = {
            n: (w.double() + taken[n]).to(w.dtype) if n in taken else w for n, w in state.server.items()
        }
        if not changes:
            return replace(state, round=state.round + 1, server=server)
        sign = 1.0 if self.protocol.sends_gradients else -1.0  # a change of weights points down, a slope up
        server = {name: weight.clone() for name, weight in server.items()}
        memory = {name: value.clone() for name, value in state.memory.items()}
        slopes = {name: (sign * change).to(server[name].dtype)[None] for name, change in changes.items()}
        lone = {name: weight[None] for name, weight in server.items()}
        self._stepper(lone, state.round).step(lone, slopes, memory)
        return replace(state, round=state.round + 1, server=server, memory=memory)

    def _mean(self, partial: Params, name: str) -> Tensor:
        if TOUCHED + name in partial:
            count = partial[TOUCHED + name].clamp(min=1)
            return partial[name] / along(count, partial[name])
        if MOVED + name in partial:
            return partial[name] / partial[MOVED + name].clamp(min=1)
        return partial[name] / partial[CLIENTS]

    def _stepper(self, names: Iterable[str], round: int) -> Stepper:
        rates = {part_of(name): self._rate(name, round) for name in names}
        return Stepper("adam" if self.protocol.server == "adam" else "sgd", rates)

    def _rate(self, name: str, round: int) -> float:
        halves = rate_of(self.protocol.server_halves, name)
        slower: float = 0.5 ** (round / halves) if halves else 1.0
        return rate_of(self.protocol.server_lr, name) * slower


def _add(partial: Message, name: str, value: Tensor) -> None:
    """Add to what was folded before, in place; `value` is nobody else's."""
    known = partial.get(name)
    partial[name] = known.add_(value) if isinstance(known, Tensor) else value


def _less(total: Tensor, base: Tensor | None, weight: Tensor) -> Tensor:
    """A sum less so many times what it is based on; it may be changed."""
    return total if base is None else total.sub_(base.double().mul_(weight))
