"""FedAvg: upload weights or gradients, average them, send the result back.

Paper: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017; server optimisers after Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
Every recommender named "Fed…" is a model run by this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Rows, Scope, part_of
from veilrec.base.rows import along
from veilrec.base.steps import Rates, Stepper, every_rate, rate_of
from veilrec.engine.store import Store
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender
from veilrec.protocol import Protocol, State
from veilrec.wire.uploads import Sent, Uploads

__all__ = ["FedAvg"]

HELPER = "helper/"  # before the name of a weight that a defence trains


@dataclass(frozen=True)
class FedAvg(Protocol):
    """Average the SHARED parts; the EXPOSED ones are only seen.

    Helpers are averaged over the devices that moved them, whatever the server does with the rest: their steps
    are the defence's. Those that a defence spares leave them as they came. Which parts are helpers is kept in
    the state's memory.

    Attributes:
        sends: Trained weights, or the gradient of the client's own mean loss at the weights received.
        weigh: Mean over all clients of the round, over those that touched a row, or by number of examples.
        server: What the server does with the mean: take it as it is, or step along it.
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
    server_halves: Rates = 0.0

    def __post_init__(self) -> None:
        rounds = every_rate(self.server_halves)
        if not all(0 <= some < math.inf for some in rounds):
            what = f"{self.server_halves} is no number of rounds"
            raise BadInput("protocol.server_halves", what, "give 0 or more")
        if self.server == "none" and any(rounds):
            fix = 'set protocol.server to "sgd" or "adam"'
            raise BadInput("protocol.server_halves", "a server that only averages has no rate", fix)
        if self.sends == "gradients" and self.server == "none":
            raise BadInput(
                "protocol.server", "gradients need a server that steps", 'set it to "sgd" or "adam"'
            )

    def still(self) -> bool:
        return self.sends == "gradients"

    def sums(self) -> bool:
        return self.still() and self.weigh == "clients"

    def counts(self) -> bool:
        return self.weigh == "examples"

    def start(self, model: Recommender, devices: Store, keys: Keys) -> State:
        server = {name: model.initial(name, keys.fold(name)) for name in model.names(Scope.SHARED)}
        lone = {name: weight[None] for name, weight in server.items()}  # the server is a cohort of one
        helpers = {HELPER + n: w.new_zeros(()) for n, w in server.items() if model.parts[part_of(n)].helper}
        return State(0, server, devices, {**self._stepper(lone, 0).fresh(lone), **helpers})

    def send(self, state: State, cohort: Tensor, keys: Keys) -> Sent:
        return Sent(state.server, {})

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        message: Message = {}
        for name in model.names(Scope.SHARED, Scope.EXPOSED):
            part = model.parts[part_of(name)]
            value = gradient[name] if part.scope is Scope.SHARED and self.still() else trained[name]
            message[name] = Rows(device.batch.rows, value) if part.rows == "item" else value
        return message

    def absorb(self, state: State, partial: Params, uploads: Uploads) -> Params:
        """Sums of changes in float64 and in the order of the chunks: the number of workers changes no bit."""
        told = uploads.examples if self.counts() else torch.ones_like(uploads.cohort)
        assert told is not None  # the schema asks for it
        share = told.double()
        partial["clients"] = partial.get("clients", 0) + share.sum()
        for name, total in uploads.sums.items():
            partial[name] = partial.get(name, 0) + total.double()
        for name, server in state.server.items():
            if name in uploads.sums:
                continue
            value = uploads.values[name]
            if isinstance(value, Rows):
                self._absorb_rows(partial, name, server, value, share)
            else:
                change = value if self.still() else value - server
                wide = along(share, change)
                partial[name] = partial.get(name, 0) + (change.double() * wide).sum(0)
                if HELPER + name in state.memory:
                    moved = share * (change != 0).flatten(1).any(1)
                    partial[HELPER + name] = partial.get(HELPER + name, 0) + moved.sum()
        return partial

    def _absorb_rows(self, partial: Params, name: str, server: Tensor, upload: Rows, share: Tensor) -> None:
        """Rows are summed within the chunk, then added in float64; padding goes to a row nobody reads."""
        if name not in partial:
            partial[name] = server.new_zeros(server.shape, dtype=torch.float64)
            if self.weigh == "touched":
                partial[f"touched/{name}"] = server.new_zeros(len(server), dtype=torch.float64)
        row, value = upload.row.reshape(-1), upload.value.flatten(0, 1)
        # In place and with the sign turned: tables are large, and every copy is a walk through memory.
        change = -value if self.still() else server.index_select(0, row.clamp(min=0)).sub_(value)
        if self.weigh == "examples":
            each = share.to(change.dtype).repeat_interleave(upload.row.shape[1])
            change = change * along(each, change)
        place = torch.where(row < 0, len(server), row)
        total = server.new_zeros(len(server) + 1, *server.shape[1:])
        total.scatter_add_(0, along(place, change).expand_as(change), change)
        partial[name] -= total[:-1]
        if self.weigh == "touched":
            count = torch.bincount(place, minlength=len(server) + 1)
            partial[f"touched/{name}"] += count[:-1]

    def finish(self, state: State, partial: Params, keys: Keys) -> State:
        changes = {name: self._mean(partial, name) for name in state.server if name in partial}
        taken = {n: changes.pop(n) for n in [*changes] if self.server == "none" or HELPER + n in partial}
        server = {
            n: (w.double() + taken[n]).to(w.dtype) if n in taken else w for n, w in state.server.items()
        }
        if not changes:
            return replace(state, round=state.round + 1, server=server)
        sign = 1.0 if self.still() else -1.0  # a change of weights points down, a gradient up
        server = {name: weight.clone() for name, weight in server.items()}
        memory = {name: value.clone() for name, value in state.memory.items()}
        slopes = {name: (sign * change).to(server[name].dtype)[None] for name, change in changes.items()}
        lone = {name: weight[None] for name, weight in server.items()}
        self._stepper(lone, state.round).step(lone, slopes, memory)
        return replace(state, round=state.round + 1, server=server, memory=memory)

    def _mean(self, partial: Params, name: str) -> Tensor:
        if self.weigh == "touched" and f"touched/{name}" in partial:
            count = partial[f"touched/{name}"].clamp(min=1)
            return partial[name] / along(count, partial[name])
        if HELPER + name in partial:
            return partial[name] / partial[HELPER + name].clamp(min=1)
        return partial[name] / partial["clients"]

    def _stepper(self, names: Iterable[str], round: int) -> Stepper:
        rates = {part_of(name): self._rate(name, round) for name in names}
        return Stepper("adam" if self.server == "adam" else "sgd", rates)

    def _rate(self, name: str, round: int) -> float:
        halves = rate_of(self.server_halves, name)
        slower: float = 0.5 ** (round / halves) if halves else 1.0
        return rate_of(self.server_lr, name) * slower
