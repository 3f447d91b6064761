"""A protocol whose devices ask with their vector, with noise or without, and whose server scores."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from veilrec.base.params import Message
from veilrec.model import Device, Recommender
from veilrec.privacy.mechanism import Mechanism
from veilrec.protocol import Server, Shape, State
from veilrec.protocols.fedavg import Averaging, FedAvg
from veilrec.wire.codec import Schema, Spec

__all__ = ["Asking"]


@dataclass(frozen=True)
class Asking(FedAvg):
    """Devices ask with their vector, with noise or without."""

    noise: bool = True
    uploads: str = "asked"

    def query(self, model: Recommender, device: Device) -> Message:
        vector = model.represent(device.batch)
        return {self.uploads: vector + device.keys.fold("asked").laplace(*vector.shape) * self.noise}

    def query_schema(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        return {self.uploads: Spec((1, model.dim), dtype)}

    def declares(self, model: Recommender) -> tuple[Mechanism, ...]:
        one = Mechanism("asking", "asked", "laplace", Fraction(1), Fraction(1, 2), model.dim)
        return (one,) if self.noise else ()

    def make_server(self, shape: Shape) -> Server:
        return Answering(self, shape)


class Answering(Averaging):
    """The server of `FedAvg`, which scores what it is asked with."""

    def scores(self, state: State, query: Message, items: Tensor | None) -> Tensor:
        assert isinstance(query["asked"], Tensor)
        score = query["asked"] @ state.server["item"].T
        return score if items is None else score.gather(2, items)
