"""The contract of a protocol: what crosses the wire, how it is folded, and what the server does with it.

A protocol has two halves that may run in different places. What devices do, and how their uploads are folded,
are functions of the `Protocol` itself; what the server does is a `Server`, which the protocol makes. The
server's half never reads the data, nor what devices keep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import hold
from veilrec.base.params import Message, Params, Rows, Scope, part_of
from veilrec.examples import Draw, Examples
from veilrec.model import Device, Recommender
from veilrec.privacy.mechanism import Mechanism
from veilrec.wire.codec import Kind, Schema, Spec
from veilrec.wire.uploads import Fold, Letter, Posts, Uploads

__all__ = ["Counterpart", "Protocol", "Pulse", "Server", "Shape", "State", "Trained", "counterpart", "ignore"]

Pulse = Callable[[int, int], None]
"""Called with ``(done, total)`` by a server at work between rounds; it raises where the work must end."""


@dataclass(frozen=True)
class State:
    """Everything a server remembers between two rounds; of devices it holds nothing.

    Attributes:
        round: How many rounds are done.
        server: What only the server stores: the SHARED parts, or a hidden model.
        memory: Whatever else a protocol keeps, e.g. last round's sequences or the server optimiser's state.
        posts: Consenting users' latest posts.
    """

    round: int
    server: Params
    memory: Params = field(default_factory=dict)
    posts: Posts = field(default_factory=Posts.none)


class Shape(NamedTuple):
    """All that a server is made from beside its protocol's options: no data.

    Attributes:
        model: The architecture on the devices; its weights mean nothing.
        n_clients: How many clients there are.
        dtype: The numbers that weights are made of.
    """

    model: Recommender
    n_clients: int
    dtype: torch.dtype = torch.float32

    def cast(self, params: Mapping[str, Tensor]) -> Params:
        """Weights in the run's precision."""
        return {n: w.to(self.dtype) if w.is_floating_point() else w for n, w in params.items()}


class Counterpart(NamedTuple):
    """The server in one state, as devices meet it.

    Attributes:
        send: From some clients ``[c]`` to their letter.
        scores: From their queries, and items ``[c, seats, n]`` or None for all, to ``[c, seats, n]``.
    """

    send: Callable[[Tensor], Letter]
    scores: Callable[[Message, Tensor | None], Tensor]


@dataclass(frozen=True)
class Trained:
    """Devices after their local work, client axis first; item tables are local ones."""

    params: Params
    gradient: Params  # of what was only measured: the mean over the examples
    optimiser: Params
    loss: Tensor  # [c] mean over the examples


class Server(ABC):
    """The server's half of a protocol, while a run lives.

    It may own a module, an optimiser, threads. What changes from round to round lies in `State`, as plain
    data: another server that the same protocol makes goes on from a state to the same bits.
    """

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """End whatever threads there are: some rounds are over, and if more come they are started again."""

    @abstractmethod
    def start(self, keys: Keys) -> State:
        """The state before round one."""

    @abstractmethod
    def send(self, state: State, cohort: Tensor, keys: Keys) -> Letter:
        """Server → devices. SHARED tables go down whole: asking for rows would reveal what a user touches."""

    @abstractmethod
    def finish(self, state: State, fold: Fold, keys: Keys, pulse: Pulse) -> State:
        """The next state, from the fold of a round's uploads; `state` itself stays as it is."""

    def scores(self, state: State, query: Message, items: Tensor | None) -> Tensor:
        """``[c, seats, n]`` the answer to devices' queries, where their protocol makes some."""
        raise NotImplementedError


class Protocol(ABC):
    """A protocol: what devices do between a letter and their message, and how messages are folded.

    Everything here is a pure function of its arguments and sees one device, except `fold` and `merge`, which
    see a chunk of uploads, and `examples` and `learn`, which see a chunk of devices. A subclass is a frozen
    dataclass of its options.

    Attributes:
        packs_as_is: Whether `pack` only names tensors, so that a cohort is packed like one device.
        partial_is_sum: Whether a partial is a sum over devices: only a sum may leave the devices' side in
            place of single uploads (`Plan.forwards`).
    """

    packs_as_is: ClassVar[bool] = False
    partial_is_sum: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """Reset `packs_as_is` in a subclass that has a `pack` of its own and does not set it."""
        super().__init_subclass__()
        if "pack" in vars(cls) and "packs_as_is" not in vars(cls):
            cls.packs_as_is = False

    def __post_init__(self) -> None:
        """Hold the numbers among its options against their bounds; who overrides this calls it first."""
        hold(self, "protocol")

    @property
    def sends_gradients(self) -> bool:
        """Whether devices only measure the gradient of SHARED parts, which the server then moves."""
        return False

    @property
    def accepts_sums(self) -> bool:
        """Whether `fold` takes sums of gradients over devices (`Uploads.sums`) in place of each one's."""
        return False

    @property
    def needs_examples(self) -> bool:
        """Whether `fold` reads how many examples stand behind an upload; only then devices say it."""
        return False

    def examples(self, model: Recommender, draw: Draw) -> Examples:
        """The examples of some devices in a round: by default those that the model asks for."""
        return model.examples(draw)

    def objective(self, model: Recommender, device: Device) -> Tensor:
        """Device. What local training minimises, before any defence adds to it."""
        return model.loss(device)

    def learn(
        self, model: Recommender, examples: Examples, letter: Letter, own: Params, keys: Keys
    ) -> Trained:
        """Devices. Whatever lies between a letter and a message, in place of local training.

        What comes back as weights is given to `pack` and kept by devices: all of `own` must be among it.

        Args:
            model: The architecture.
            examples: What `examples` drew.
            letter: What was received.
            own: What the devices hold, ``[c, …]``: weights, item tables as local ones, optimiser state.
            keys: Each client's own for this round, ``[c]``.
        """
        raise NotImplementedError

    @abstractmethod
    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        """Device → server: what one device would upload if nobody defended it."""

    def query(self, model: Recommender, device: Device) -> Message:
        """Device → server, of whoever wants recommendations, where the server scores (`Server.scores`)."""
        raise NotImplementedError

    def declares(self, model: Recommender) -> tuple[Mechanism, ...]:
        """The noise of `pack` and `query` themselves, as far as its worth can be proved."""
        return ()

    def schema(
        self, model: Recommender, sent: Letter | None = None, dtype: torch.dtype = torch.float32
    ) -> Schema:
        """The schema of a device's upload in answer to a letter; without one, the most that may ever come.

        A letter may ask for less, for other entries and for smaller ones, of those that the schema without a
        letter lists: what a ledger says before the first round goes by that one.

        By default its SHARED and EXPOSED parts, of item tables only rows.
        """
        specs = {"examples": Spec((), torch.int32, kind="count")} if self.needs_examples else {}
        for name in model.names(Scope.SHARED, Scope.EXPOSED):
            part, shape = model.parts[part_of(name)], tuple(model.get_parameter(name).shape)
            kind: Kind = "gradient" if self.sends_gradients and part.scope is Scope.SHARED else "weight"
            by_row = part.rows == "item"
            specs[name] = Spec(shape[by_row:], dtype, shape[0] if by_row else None, kind)
        return specs

    def query_schema(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        """The schema of a device's query; empty where devices score for themselves."""
        return {}

    def letter(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        """The schema of a letter: by default the round and every SHARED part, whole.

        What is for one device alone (`Letter.each`) is named with `EACH` in front.
        """
        specs = {"round": Spec((), torch.int32, kind="count")}
        for name in model.names(Scope.SHARED):
            specs[name] = Spec(tuple(model.get_parameter(name).shape), dtype)
        return specs

    @abstractmethod
    def fold(self, model: Recommender, sent: Letter, partial: Message, uploads: Uploads) -> Message:
        """Fold one chunk's uploads into the round's partial result, which may be changed in place.

        Args:
            model: The architecture.
            sent: What the chunk received.
            partial: What was folded before; empty at the beginning.
            uploads: What the chunk sent.
        """

    def merge(self, partial: Message, other: Message) -> Message:
        """Two partial results as one, in any order: by default sums are added; `partial` may be changed."""
        for name, value in other.items():
            known = partial.get(name)
            if isinstance(value, Rows) or isinstance(known, Rows):
                raise NotImplementedError(f"a partial of rows ({name}) is merged by its own protocol")
            partial[name] = value if known is None else known + value
        return partial

    @abstractmethod
    def partial_schema(self, model: Recommender, sent: Letter) -> Schema:
        """The schema of a partial that leaves the devices' side; an entry may be missing."""

    @abstractmethod
    def make_server(self, shape: Shape) -> Server:
        """The server's half."""


def ignore(done: int, total: int) -> None:
    """A pulse that nobody listens to."""


def counterpart(server: Server, state: State, keys: Keys) -> Counterpart:
    """A server in a state, for devices that want to score, be probed or be attacked."""

    def scores(query: Message, items: Tensor | None) -> Tensor:
        return server.scores(state, query, items)

    return Counterpart(lambda cohort: server.send(state, cohort, keys), scores)
