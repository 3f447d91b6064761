"""The contract of a protocol: what crosses the wire, and what the server does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Scope, part_of
from veilrec.engine.store import Store
from veilrec.model import Device, Recommender
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import Posts, Sent, Uploads

__all__ = ["Protocol", "State"]


@dataclass(frozen=True)
class State:
    """Everything a federation remembers between two rounds.

    Attributes:
        round: How many rounds are done.
        server: What only the server stores: the SHARED parts, or a hidden model.
        devices: EXPOSED and PRIVATE parts and their optimiser state; deployed, each device keeps its own.
        memory: Whatever else a protocol keeps, e.g. last round's sequences or the server optimiser's state.
        posts: Consenting users' latest posts.
    """

    round: int
    server: Params
    devices: Store
    memory: Params = field(default_factory=dict)
    posts: Posts = field(default_factory=Posts.none)


class Protocol(ABC):
    """`start`, `send`, `absorb` and `finish` run on the server; `objective` and `pack` see one device.

    A cohort arrives in chunks: `absorb` folds a chunk's uploads into a running partial result (a sum, a
    buffer of sequences) and `finish` turns it into the next state, so that no cohort's uploads are ever
    held whole.

    Attributes:
        packs_as_is: Whether `pack` only names tensors, so that a cohort is packed like one device.
    """

    packs_as_is: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """A subclass with a `pack` of its own says for itself whether it only chooses and names."""
        super().__init_subclass__()
        if "pack" in vars(cls) and "packs_as_is" not in vars(cls):
            cls.packs_as_is = False

    def still(self) -> bool:
        """True where devices only measure the gradient of SHARED parts; moving them is the server's part."""
        return False

    def sums(self) -> bool:
        """Whether `absorb` takes sums of gradients over devices (`Uploads.sums`) in place of each one's."""
        return False

    def counts(self) -> bool:
        """Whether `absorb` reads how many examples stand behind an upload; only then devices tell it."""
        return False

    @abstractmethod
    def start(self, model: Recommender, devices: Store, keys: Keys) -> State:
        """The state before round one."""

    @abstractmethod
    def send(self, state: State, cohort: Tensor, keys: Keys) -> Sent:
        """Server → devices. SHARED tables go down whole: asking for rows would tell what a user touches."""

    def objective(self, model: Recommender, device: Device) -> Tensor:
        """Device. What local training minimises, before any defence adds to it."""
        return model.loss(device)

    @abstractmethod
    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        """Device → server: what one device would upload if nobody defended it."""

    @abstractmethod
    def absorb(self, state: State, partial: Params, uploads: Uploads) -> Params:
        """Server. Fold one chunk's uploads into the round's partial result, which may be changed in place."""

    @abstractmethod
    def finish(self, state: State, partial: Params, keys: Keys) -> State:
        """Server. Turn the round's partial result into the next state."""

    def serve(self, model: Recommender, state: State, device: Device, items: Tensor | None) -> Tensor:
        """``[seats, n]`` the scores a user is shown: the device's own, unless overridden."""
        return model.scores(device.batch, items)

    def schema(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        """What one device may upload: by default its SHARED and EXPOSED parts, of item tables only rows."""
        specs = {"examples": Spec((), torch.int32)} if self.counts() else {}
        for name in model.names(Scope.SHARED, Scope.EXPOSED):
            part, shape = model.parts[part_of(name)], tuple(model.get_parameter(name).shape)
            specs[name] = Spec(shape[1:], dtype, shape[0]) if part.rows == "item" else Spec(shape, dtype)
        return specs

    def letter(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        """What one device receives: by default the round and every SHARED part, whole."""
        specs = {"round": Spec((), torch.int32)}
        for name in model.names(Scope.SHARED):
            specs[name] = Spec(tuple(model.get_parameter(name).shape), dtype)
        return specs
