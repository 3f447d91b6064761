"""The contract of a defence, which is also the map of the line it stands on.

interactions → clients → local training → uploads → server ⟳ … → trained model
               prepare   attach           on_upload   stop
                         helper_loss      posts
                         penalty          declares
                         after_epoch
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar, cast

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import hold
from veilrec.base.params import Message, Params
from veilrec.clients import Clients
from veilrec.errors import BadInput, nearest
from veilrec.model import Device, Recommender, bind, mapped, overrides
from veilrec.privacy.mechanism import Mechanism
from veilrec.protocol import Protocol, State
from veilrec.wire.codec import Schema

__all__ = ["Chain", "Defence", "HelperSteps", "Posting", "chain", "changed", "guarded", "loss_of", "secretly"]

HOOKS = ("prepare", "attach", "posts", "helper_loss", "penalty", "after_epoch", "on_upload", "stop")
Values = TypeVar("Values", Message, Params)


@dataclass(frozen=True)
class HelperSteps:
    """Steps that train the `helper` parts of a defence, beside the recommender.

    Attributes:
        lr, momentum, clip: Of their own SGD, and a bound on the norm of a device's gradient; 0 for none.
        every, after: Train them in every n-th round only, and in none of the first so many.
        times: How many steps they take before each step of the recommender, each with draws of its own.
        taught_by: The attributes whose sharers alone train them, so that an experiment in which nobody shares
            one of them is refused; empty for all that the data has, None where everybody trains them.
    """

    lr: float = 0.1
    momentum: float = 0.0
    clip: float = 0.0
    every: int = 1
    after: int = 0
    times: int = 1
    taught_by: tuple[str, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Posting:
    """A declaration of what consenting users post openly in each round, for everybody to read.

    Attributes:
        asks: The attributes that posts may reveal: users post who share every one of them, since a vector
            may reveal whatever it was trained to. Where nothing is asked for, nobody posts.
        schema: What one user may post; whatever is beyond that is refused.
        make: From a device's model, and the device with the labels that its users share, to ``[seats, …]``.
    """

    asks: Sequence[str]
    schema: Schema
    make: Callable[[Recommender, Device], Params]

    def willing(self, consents: Mapping[str, Tensor]) -> Tensor:
        """``[clients, seats]`` the users who post."""
        if not self.asks or not consents.keys() >= set(self.asks):
            return torch.zeros_like(next(iter(consents.values()), torch.zeros(0, 0)), dtype=torch.bool)
        return torch.stack([consents[name] for name in self.asks]).all(0)


class Defence:
    """Override the places where the defence acts; all the others leave things as they are.

    A defence is a frozen dataclass of its hyper-parameters. Anything it learns is a `Part` it attaches to
    the model, so it is stored, sent, averaged and attacked like any other weight.

    Attributes:
        helpers: How its `helper` parts are trained.
        leads: The hooks (losses, `after_epoch`, `on_upload`) that are written for a cohort as well: weights,
            `Device.batch`, `Device.sent` and `Device.keys` then have the client axis in front, and losses are
            ``[clients]``. All others are mapped over devices; a contract test holds the two equal.
        penalty_is: Whether the penalty is added in each ``step``, or once in a ``round``, in its first step.
            Where gradients are sent, that of a round leaves whole, however many steps there are.
        watches: Metrics of validation that `stop` reads.
        secret: Whether its noise is the operating system's, as on a real device: see `secretly`.
    """

    helpers: ClassVar[HelperSteps] = HelperSteps()
    leads: ClassVar[frozenset[str]] = frozenset()
    penalty_is: ClassVar[Literal["step", "round"]] = "step"
    watches: ClassVar[tuple[str, ...]] = ()
    secret: ClassVar[bool] = False

    @property
    def guards_from(self) -> int:
        """Rounds in which it does not guard yet: of their states none is kept as the best."""
        return 0

    def __init_subclass__(cls, **rest: Any) -> None:
        """A subclass with a hook of its own says for itself whether that is written for a cohort as well."""
        super().__init_subclass__(**rest)
        if "leads" not in vars(cls):
            cls.leads = cls.leads - vars(cls).keys()

    def __post_init__(self) -> None:
        """Hold the numbers among its options against their bounds; who overrides this calls it first."""
        hold(self, "defence")

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        """Before training: change what the devices hold. A real device does it alone: ask no other's data."""
        return clients

    def attach(self, model: Recommender) -> Recommender:
        """Before training: add parts to the model, or wrap it."""
        return model

    def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting | None:
        """The posting of consenting users, weights in the given precision; None where nobody posts."""
        return None

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        """Device, before each step: what the `helper` parts minimise. Nothing else moves."""
        return torch.zeros(())

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        """Device, each step: what is added to the recommendation loss. Helpers stand still."""
        return torch.zeros(())

    def after_epoch(self, params: Params, device: Device) -> Params:
        """Device, after each local epoch: change the weights that it trains."""
        return params

    def on_upload(self, upload: Message, device: Device) -> Message:
        """Device, last thing before the wire: change what leaves."""
        return upload

    def declares(self, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        """The noise of `on_upload`, as far as its worth can be proved; the ledger counts on nothing else.

        Raises:
            BadInput: Where the defence cannot act on what the protocol sends.
        """
        return ()

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        """Server, after each round: True ends training."""
        return False

    def acts(self, hook: str) -> bool:
        """Whether the defence does anything at a place; the engine skips those where it does not."""
        return overrides(self, Defence, hook)

    @property
    def links(self) -> tuple[Defence, ...]:
        """The single defences that it is made of, in order; itself, unless it is a chain."""
        return (self,)

    def acting(self, hook: str, device: Device) -> Iterator[tuple[Defence, Device]]:
        """Each link that acts at a hook, with the device as it sees it."""
        if self.acts(hook):
            yield self, device


@dataclass(frozen=True)
class Chain(Defence):
    """Several defences as one: changes apply in order, losses add up, any may stop."""

    of: tuple[Defence, ...]

    def __post_init__(self) -> None:
        if len({d.helpers for d in self.of if d.acts("helper_loss")}) > 1:
            what = "two of them train helpers of their own, each at another pace"
            raise BadInput("defence", what, "name one of the two, or give both the same rates")

    def acts(self, hook: str) -> bool:
        return any(defence.acts(hook) for defence in self.of)

    @property
    def links(self) -> tuple[Defence, ...]:
        return tuple(link for defence in self.of for link in defence.links)

    def acting(self, hook: str, device: Device) -> Iterator[tuple[Defence, Device]]:
        """Each with keys of its own: two of a kind must not draw the same numbers."""
        for place, defence in enumerate(self.of):
            yield from defence.acting(hook, device._replace(keys=device.keys.fold(place)))

    @property
    def helpers(self) -> HelperSteps:  # type: ignore[override]
        return next((d.helpers for d in self.of if d.acts("helper_loss")), HelperSteps())

    @property
    def guards_from(self) -> int:
        return max((defence.guards_from for defence in self.of), default=0)

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        for place, defence in enumerate(self.of):
            clients = defence.prepare(clients, keys.fold(place))
        return clients

    def attach(self, model: Recommender) -> Recommender:
        for defence in self.of:
            model = defence.attach(model)
        return model

    def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting | None:
        """All that its links post, of users who share whatever any of them asks for."""
        some = [posting for link in self.links if (posting := link.posts(model, dtype)) is not None]
        if not some:
            return None

        def make(model: Recommender, device: Device) -> Params:
            each = [(link.posts(model, dtype), own) for link, own in self.acting("posts", device)]
            return {n: v for posting, own in each if posting for n, v in posting.make(model, own).items()}

        asks = tuple(dict.fromkeys(name for posting in some for name in posting.asks))
        return Posting(asks, {n: spec for posting in some for n, spec in posting.schema.items()}, make)

    def _by_links(self, *arguments: Any) -> Any:
        """What happens on devices is asked of the links: a chain that did nothing here would go unnoticed."""
        raise TypeError("a chain acts on devices link by link: see `acting`, `loss_of` and `changed`")

    helper_loss = penalty = after_epoch = on_upload = cast("Any", _by_links)

    def declares(self, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        """The mechanisms of each; a table that one has sent up whole stays whole for those after it."""
        declared: list[Mechanism] = []
        for place, defence in enumerate(self.of):
            whole = {m.name for m in declared if m.rows == "all"}
            for mechanism in defence.declares(model, protocol):
                rows = "all" if mechanism.name in whole else mechanism.rows
                declared.append(replace(mechanism, rows=rows, place=place))
        return tuple(declared)

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        return any(defence.stop(state, history) for defence in self.of)


def loss_of(
    link: Defence, hook: str, model: Recommender, params: Params, devices: Device, axes: Device
) -> Tensor:
    """``[clients]`` a loss of one link for a cohort; `axes` says what has the client axis in front."""
    loss = getattr(link, hook)
    if hook in link.leads:
        return bind(model, params, loss, _leading(devices, axes))  # type: ignore[no-any-return]
    return mapped(model, loss, axes)(params, devices)


def changed(defence: Defence, hook: str, values: Values, devices: Device, axes: Device) -> Values:
    """A cohort's uploads, or weights, after all links have changed them at a hook."""
    for link, own in defence.acting(hook, devices):
        change = getattr(link, hook)
        if hook in link.leads:
            values = change(values, _leading(own, axes))
        else:
            values = vmap(change, in_dims=(0, axes))(values, own)
    return values


def _leading(devices: Device, axes: Device) -> Device:
    """The same devices, with the client axis also in front of what all were sent alike."""
    clients = len(devices.keys.value)
    sent = {n: v if axes.sent[n] == 0 else v.expand(clients, *v.shape) for n, v in devices.sent.items()}
    return devices._replace(sent=sent)


def guarded(model: Recommender, attributes: Sequence[str]) -> dict[str, int]:
    """Classes of each attribute that a defence guards: those named, or all; none without data.

    Raises:
        BadInput: Where the data has none, or not one that is named.
    """
    known = model.classes
    if known is None:
        return {}
    if not known:
        raise BadInput("defence", "the data has no attribute to guard", "use data with attributes")
    for name in attributes:
        if name not in known:
            raise BadInput("defence.attributes", f'the data has no attribute "{name}"', nearest(name, known))
    return {name: known[name] for name in attributes or known}


def secretly(defence: Defence) -> Defence:
    """The defence as a real device runs it: what must be secret is drawn from the operating system.

    No setting says so: what a recipe says is the same on a real device and in a simulation.
    """
    if isinstance(defence, Chain):
        return Chain(tuple(secretly(one) for one in defence.of))
    real = copy.copy(defence)
    object.__setattr__(real, "secret", True)
    return real


def chain(*defences: Defence) -> Defence:
    """Several defences as one; one alone stays what it is."""
    return defences[0] if len(defences) == 1 else Chain(tuple(defences))
