"""The contract of a defence, which is also the map of the line it stands on.

interactions → clients → local training → uploads → server ⟳ … → trained model
               prepare   attach           on_upload   stop
                         publish
                         helper_loss
                         penalty
                         after_epoch
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params
from veilrec.clients import Clients
from veilrec.errors import BadInput, nearest
from veilrec.model import Device, Recommender, mapped, overrides
from veilrec.privacy.mechanism import Mechanism
from veilrec.protocol import Protocol, State
from veilrec.wire.codec import Schema

__all__ = ["Defence", "HelperSteps", "chain", "guarded", "secretly"]

ON_DEVICES = ("publish", "helper_loss", "penalty", "after_epoch", "on_upload")
HOOKS = ("prepare", "attach", *ON_DEVICES, "stop")
BATCHED = {"on_upload": "on_uploads", "penalty": "cohort_penalty", "helper_loss": "cohort_helper_loss"}


@dataclass(frozen=True)
class HelperSteps:
    """Steps that train the `helper` parts of a defence, beside the recommender.

    Attributes:
        lr, momentum, clip: Of their own SGD, and a bound on the norm of a device's gradient; 0 for none.
        every, after: Train them in every n-th round only, and in none of the first so many.
        times: How many steps they take before each step of the recommender, each with draws of its own.
    """

    lr: float = 0.1
    momentum: float = 0.0
    clip: float = 0.0
    every: int = 1
    after: int = 0
    times: int = 1


class Defence:
    """Override the places where the defence acts; all the others leave things as they are.

    A defence is a frozen dataclass of its hyper-parameters. Anything it learns is a `Part` it attaches to
    the model, so it is stored, sent, averaged and attacked like any other weight.
    """

    helpers: ClassVar[HelperSteps] = HelperSteps()
    watches: ClassVar[tuple[str, ...]] = ()  # metrics of validation that `stop` reads

    @property
    def guards_from(self) -> int:
        """Rounds in which it does not guard yet: of their states none is kept as the best."""
        return 0

    def __init_subclass__(cls, **rest: Any) -> None:
        """A subclass that changes what one device does loses the batched form that it inherits."""
        super().__init_subclass__(**rest)
        for alone, batched in BATCHED.items():
            if alone in vars(cls) and batched not in vars(cls):
                setattr(cls, batched, getattr(Defence, batched))

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        """Before training: change what the devices hold. A real device does it alone: ask no other's data."""
        return clients

    def attach(self, model: Recommender) -> Recommender:
        """Before training: add parts to the model, or wrap it."""
        return model

    def publish(self, model: Recommender, device: Device) -> Params:
        """Device, only users who share all that it `asks` for: what they post this round, ``[seats, …]``."""
        return {}

    def asks(self, model: Recommender) -> Sequence[str]:
        """Attributes that its posts may tell; without posts, those it learns from whoever shares them."""
        return tuple(model.classes or ()) if self.acts("publish") else ()

    def announce(self, model: Recommender, dtype: torch.dtype) -> Schema:
        """What `publish` may post for one user; whatever it posts beyond that is refused."""
        return {}

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        """Device, before each step: what the `helper` parts minimise. Nothing else moves."""
        return torch.zeros(())

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        """Device, each step: what is added to the recommendation loss. Helpers stand still."""
        return torch.zeros(())

    def cohort_helper_loss(self, model: Recommender, params: Params, devices: Device, axes: Device) -> Tensor:
        """``[clients]`` as `helper_loss`, for a cohort; `axes` says what has the client axis in front.

        Override this or `cohort_penalty` where batched products are faster than `vmap`; a contract test holds
        each equal to its form for one device.
        """
        return mapped(model, self.helper_loss, axes)(params, devices)

    def cohort_penalty(self, model: Recommender, params: Params, devices: Device, axes: Device) -> Tensor:
        """``[clients]`` as `penalty`, for a cohort."""
        return mapped(model, self.penalty, axes)(params, devices)

    def after_epoch(self, params: Params, device: Device) -> Params:
        """Device, after each local epoch: change the weights that it trains."""
        return params

    def on_upload(self, upload: Message, device: Device) -> Message:
        """Device, last thing before the wire: change what leaves."""
        return upload

    def on_uploads(self, uploads: Message, devices: Device, axes: Device) -> Message:
        """As `on_upload`, for a cohort; `axes` says what has the client axis in front, as for `vmap`.

        Override it where that is faster than `vmap` over `on_upload`; a contract test holds the two equal.
        """
        return vmap(self.on_upload, in_dims=(0, axes))(uploads, devices)

    def whole(self, model: Recommender) -> int:
        """How many values a device holds because of the defence: where they are many, chunks are small.

        Item tables that `on_upload` sends up whole, or large networks of its own with all that training adds.
        """
        return 0

    def declares(self, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        """The noise of `on_upload`, as far as its worth can be proved; the ledger counts on nothing else.

        Raises:
            BadInput: Where the defence cannot act on what the protocol sends.
        """
        return ()

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        """Server, after each round: True ends training."""
        return False

    def on_device(self) -> Defence:
        """The defence as a real device runs it: what must be secret is drawn from the operating system."""
        return self

    def acts(self, hook: str) -> bool:
        """Whether the defence does anything at a place; the engine skips those where it does not."""
        return overrides(self, Defence, hook)


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
    def helpers(self) -> HelperSteps:  # type: ignore[override]
        return next((d.helpers for d in self.of if d.acts("helper_loss")), HelperSteps())

    @property
    def watches(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(name for defence in self.of for name in defence.watches)

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

    def publish(self, model: Recommender, device: Device) -> Params:
        return {n: post for d, own in self._each(device) for n, post in d.publish(model, own).items()}

    def asks(self, model: Recommender) -> Sequence[str]:
        return list(dict.fromkeys(n for d in self.of if d.acts("publish") for n in d.asks(model)))

    def announce(self, model: Recommender, dtype: torch.dtype) -> Schema:
        return {name: spec for d in self.of for name, spec in d.announce(model, dtype).items()}

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        return sum((d.helper_loss(model, own) for d, own in self._each(device)), torch.zeros(()))

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return sum((d.penalty(model, own) for d, own in self._each(device)), torch.zeros(()))

    def cohort_helper_loss(self, model: Recommender, params: Params, devices: Device, axes: Device) -> Tensor:
        each = [(d, own) for d, own in self._each(devices) if d.acts("helper_loss")]
        return sum((d.cohort_helper_loss(model, params, own, axes) for d, own in each), torch.zeros(()))

    def cohort_penalty(self, model: Recommender, params: Params, devices: Device, axes: Device) -> Tensor:
        each = [(d, own) for d, own in self._each(devices) if d.acts("penalty")]
        return sum((d.cohort_penalty(model, params, own, axes) for d, own in each), torch.zeros(()))

    def after_epoch(self, params: Params, device: Device) -> Params:
        for defence, own in self._each(device):
            params = defence.after_epoch(params, own)
        return params

    def on_upload(self, upload: Message, device: Device) -> Message:
        for defence, own in self._each(device):
            upload = defence.on_upload(upload, own)
        return upload

    def on_uploads(self, uploads: Message, devices: Device, axes: Device) -> Message:
        for defence, own in self._each(devices):
            if defence.acts("on_upload"):
                uploads = defence.on_uploads(uploads, own, axes)
        return uploads

    def whole(self, model: Recommender) -> int:
        return sum(defence.whole(model) for defence in self.of)

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

    def on_device(self) -> Defence:
        return Chain(tuple(defence.on_device() for defence in self.of))

    def _each(self, device: Device) -> Iterator[tuple[Defence, Device]]:
        """Each defence with keys of its own: two of a kind must not draw the same numbers."""
        for place, defence in enumerate(self.of):
            yield defence, device._replace(keys=device.keys.fold(place))


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
    """A copy whose `secret` is true: no setting, so that what a recipe says is the same on a real device."""
    real = copy.copy(defence)
    object.__setattr__(real, "secret", True)
    return real


def chain(*defences: Defence) -> Defence:
    """Several defences as one; one alone stays what it is."""
    return defences[0] if len(defences) == 1 else Chain(tuple(defences))
