"""The contract of a recommender, seen from one device."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from veilrec.base.keys import Keys, normal_of
from veilrec.base.limits.bounds import Scales, bounded
from veilrec.base.params import Params, Part, Parts, Scope, part_of
from veilrec.base.steps import rate_of
from veilrec.clients import Batch, Clients
from veilrec.examples import Draw, Examples

__all__ = [
    "Device",
    "Recommender",
    "begun",
    "bind",
    "made",
    "mapped",
    "wants_features",
    "with_classes",
    "with_part",
]


SCALE = 0.01  # standard deviation of fresh vectors, where nobody says otherwise


class Device(NamedTuple):
    """All that one device holds during one local step."""

    batch: Batch
    sent: Params  # what the server sent this round, for all and for this device
    public: Params  # consenting users' latest posts, one row per user
    keys: Keys
    round: Tensor  # int64 scalars: warm-up, annealing and triggers need them
    step: Tensor


class Recommender(nn.Module, ABC):
    """One device's recommender, written as if no other device existed.

    The engine runs a whole cohort of them with `vmap`, so the code must not branch on the value of a
    tensor; use masks. Each entry of `parts` is a top-level attribute of the module. The module holds the
    architecture: its weights mean nothing, the engine puts each device's own in their place.

    A `personal` recommender is scored with what a device makes of the SHARED parts, not with what it is sent:
    before it scores, it trains once more on its own data, uploads nothing and keeps nothing. Keeping what
    each device made of them in its last round would be a table for each client.
    """

    parts: Parts
    dim: int  # width of `represent`
    history: int = 0  # how many of a user's latest items `Batch.history` shall hold; -1 for all
    ordered: bool = False  # whether it reads what came last: its history at the test has the validation item
    personal: bool = False  # whether a device trains once more before it scores
    classes: Mapping[str, int] | None = None  # of each attribute of the data; None where no data is known
    scale: Scales = SCALE  # standard deviation of fresh user and item tables, one for all or by part
    dense: bool = False  # whether each device moves all shared weights, its loss taking weights for all alike

    def __init_subclass__(cls, **rest: Any) -> None:
        """A subclass refuses numbers out of their bounds; one that changes what is computed for one device
        loses the batched form that it inherits.
        """
        super().__init_subclass__(**rest)
        if "__init__" in vars(cls):
            lacking = f"give the class, or functools.partial({cls.__name__}, dim=8): the data tell the rest"
            setattr(cls, "__init__", bounded("model", lacking)(cls.__init__))  # noqa: B010  # mypy
        for batched, alone in (("cohort_loss", "loss"), ("cohort_scores", "scores")):
            changed = {alone, "scoring_user", "represent"} & vars(cls).keys()
            if changed and batched not in vars(cls):
                setattr(cls, batched, getattr(Recommender, batched))

    def examples(self, draw: Draw) -> Examples:
        """The examples of a round for some devices: by default every event once an epoch, with negatives."""
        return draw.portion(self.history)

    @abstractmethod
    def loss(self, device: Device) -> Tensor:
        """The loss that local training minimises: a scalar, the mean over the examples of the batch."""

    @abstractmethod
    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        """``[seats, n]``, higher is better: of the given items ``[seats, n]``, or of all in order."""

    @abstractmethod
    def represent(self, batch: Batch) -> Tensor:
        """``[seats, dim]`` the vector that stands for a user: what defences guard and attacks want."""

    def scoring_user(self, batch: Batch) -> Tensor:
        """``[seats, dim]`` the user vector that is scored with; a defence may add to it."""
        return self.represent(batch)

    def summary_of_absent_rows(self, row: Tensor, kept: Params) -> Tensor:
        """``[seats, w]`` what `represent` must know of its private rows outside the local table.

        In training a device holds the rows of its round. Where its vector is made of all that it keeps, it
        finds the rest as `Batch.rest`: this, of the rows ``row [r]`` (-1 where there is none) and, by name,
        their values ``[r, …]``. It reads no weight, and steps then read the whole local table.
        """
        return row.new_zeros(0, 0)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        """``[clients]`` the losses of a cohort, every tensor with the client axis first.

        Override it where batched matrix products are faster than `vmap` over `loss`; a contract test
        holds the two equal.
        """
        raise NotImplementedError

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        """``[clients, seats, n]`` as `scores`, for a cohort.

        SHARED weights come without the client axis, unless the model is `personal`: then all have it.
        """
        raise NotImplementedError

    def initial(self, name: str, keys: Keys) -> Tensor:
        """A fresh weight, with the leading axis of `keys` if it has one.

        A module inside that has an `initial` of its own decides for its weights, by their last name. Else
        tables are N(0, `scale`²), but PRIVATE item tables zero; matrices are uniform after Glorot and
        Bengio, everything else is zero.
        """
        owner, _, last = name.rpartition(".")
        if owner and hasattr(self.get_submodule(owner), "initial"):
            return self.get_submodule(owner).initial(last, keys)  # type: ignore[no-any-return, operator]
        shape = self.get_parameter(name).shape
        part = self.parts[part_of(name)]
        if part.rows == "item" and part.scope is Scope.PRIVATE:
            return torch.zeros(*keys.value.shape, *shape, device=keys.value.device)
        if part.rows is not None:
            return self.scale_of(name) * keys.normal(*shape)
        if len(shape) < 2:
            return keys.uniform(*shape) * 0
        bound = math.sqrt(6 / (shape[-2] + shape[-1]))
        return (2 * keys.uniform(*shape) - 1) * bound

    def initial_rows(self, name: str, keys: Keys, row: Tensor) -> Tensor:
        """``[c, r, …]`` what some rows ``[c, r]`` of a device's own item table are before their first step.

        Zeros; where the part says `keyed_rows`, N(0, `scale`²) by the device's keys ``[c]`` and the row.
        """
        shape = self.get_parameter(name).shape[1:]
        if not self.parts[part_of(name)].keyed_rows:
            return torch.zeros(*row.shape, *shape, device=row.device)
        words = Keys(keys.value[:, None]).rows(row.clamp(min=0), math.prod(shape))
        return (self.scale_of(name) * normal_of(words).float()).reshape(*row.shape, *shape)

    def scale_of(self, name: str) -> float:
        """The standard deviation of a fresh table: `scale`, or by part its own, ``default``, or `SCALE`."""
        by_part = self.scale if isinstance(self.scale, Mapping) else {"default": self.scale}
        return rate_of({"default": SCALE, **by_part}, name)

    def names(self, *scopes: Scope) -> list[str]:
        """The weights whose part has one of the given scopes, or all of them."""
        return [n for n, _ in self.named_parameters() if not scopes or self.parts[part_of(n)].scope in scopes]


class _Bound(nn.Module):
    """`functional_call` reaches only `forward`; this lets it call any function of a model."""

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.model, *arguments)


def bind(model: Recommender, params: Params, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(model, *arguments)`` with `params` in the place of the model's weights.

    Not for two threads on one module: the weights are swapped in place for the time of the call.
    """
    return functional_call(
        _Bound(model), {f"model.{n}": w for n, w in params.items()}, (function, *arguments)
    )


def mapped(model: Recommender, function: Callable[..., Tensor], axes: Device) -> Callable[..., Tensor]:
    """``function(model, device)`` of one device for a cohort, given its weights and devices.

    A weight without the client axis is the same for all, and is computed with once.
    """

    def alone(params: Params, device: Device) -> Tensor:
        return bind(model, params, function, device)  # type: ignore[no-any-return]

    def every(params: Params, devices: Device) -> Tensor:
        where = {n: 0 if w.dim() > model.get_parameter(n).dim() else None for n, w in params.items()}
        return vmap(alone, in_dims=(where, axes))(params, devices)

    return every


def with_classes(model: Recommender, clients: Clients) -> Recommender:
    """Tell a model how many classes each attribute has, so that a defence may attach a head for each."""
    log, knowing = clients.log, copy.copy(model)
    knowing.classes = {
        name: len(log.classes.get(name, ())) or int(label.max()) + 1 for name, label in log.attributes.items()
    }
    return knowing


def wants_features(factory: Callable[..., Recommender]) -> bool:
    """Whether a model reads `Batch.features`: it then takes ``n_features``, the number of columns."""
    return "n_features" in inspect.signature(factory).parameters


def made(factory: Callable[..., Recommender], n_items: int, n_seats: int, n_features: int = 0) -> Recommender:
    """The model for so many items, users a device and, where it reads them, features a user."""
    if wants_features(factory):
        return factory(n_items, n_seats, n_features=n_features)
    return factory(n_items, n_seats)


def overrides(entry: object, contract: type, method: str) -> bool:
    """Whether an entry gives a method of its contract a body of its own."""
    return getattr(type(entry), method) is not getattr(contract, method)


def with_part(model: Recommender, name: str, what: nn.Module | nn.Parameter, part: Part) -> Recommender:
    """A copy of `model` with one more part; how a defence adds a network of its own."""
    wider = copy.deepcopy(model)
    setattr(wider, name, what)
    wider.parts = {**model.parts, name: part}
    return wider


def begun(model: Recommender, names: Iterable[str], own: Keys, common: Keys) -> Params:
    """Fresh weights of devices with keys of their ``own [c]``; of parts that begin alike from `common`.

    Item tables are left out: of those a device holds no row before it has touched one (`private_rows`).
    """
    found = {}
    for name in names:
        if model.parts[part_of(name)].rows == "item":
            continue
        if model.parts[part_of(name)].shared_init:
            value = model.initial(name, common.fold(name))
            found[name] = value.expand(*own.value.shape, *value.shape).contiguous()
        else:
            found[name] = model.initial(name, own.fold(name))
    return found
