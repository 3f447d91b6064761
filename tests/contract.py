"""What the contract tests are run on: every entry of the catalogue, built small, and some of its variants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope, part_of
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.examples import Draw
from veilrec.model import Device, Recommender, bind
from veilrec.recipe.catalogue import entries
from veilrec.wire.uploads import Letter

# Given to whatever takes an option of that name.
SMALL = {"dim": 6, "attribute": "gender", "head": (8, 4), "part": "adversary"}
# A user of FedGCN is a product of weights that all share: it takes some width to tell two kinds apart.
SIZES = {
    "FedGCN": {"dim": 16, "head": (32,)},
    "FedVAE": {"hidden": 16, "per": "item"},  # sums diverge at the rates of these tests
    "FedAU2": {"head": "dsvae", "hidden": 5},
    "one_hot": {"part": "user"},
    "D2D": {"steps": 40, "weight": 5.0},
    "Obliviator": {"stages": 2, "hidden": 16, "features": 48},
    "DLG": {"steps": 40},
    "attribute": {"classifiers": ("logistic", "tree")},  # each of the others has tests of its own
}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "FedGCN": [{"objective": "bpr", "head": (32, 16)}],
    "FedLightGCN": [
        {"objective": "bpr", "user": "exposed", "head": ()},
        {"sharing": "private", "personal": True},
        {"head": (), "personal": True},
    ],
    "FedMF": [{"objective": "bpr", "user": "exposed"}],
    "FedNCF": [
        {"kind": "neumf", "tower_dim": 5},
        {"objective": "bpr", "user": "exposed"},
        {"sharing": "private"},
        {"head": (8,)},
        {"kind": "neumf", "personal": True},
    ],
    "FedRAP": [{"variant": "original"}, {"project": 5}],
    "GRU4Rec": [{"items": "private", "sharing": "private", "units": 4}],
    "SASRec": [{"items": "private", "sharing": "private", "blocks": 1, "heads": 1}],
    "PFedRec": [{"personal": False}],
    "APM": [
        {"order": "equation-11", "rows": "touched", "low": 10.0},
        {"order": ("user", "mlp2", "mlp1", "item"), "every": "epoch"},
        {"every": "epoch", "rows": "touched", "what": "change"},
    ],
    "FedVAE": [{"hidden": 9, "dropout": 0.0, "beta": 0.0}, {"hidden": 5, "anneal": 4}],
    "FedAU2": [
        {"trigger": "continuous", "head": "vae", "attributes": ("gender",), "hidden": 5, "each": "step"},
        {"head": "plain", "strength": 3.0},
        {"trigger": "global", "weight": 0.5, "variance": 0.5},
        {"label_epsilon": 0.7, "hidden": 5},
    ],
    "AegisFed": [{"statistics": "sums"}],
    "AegisCS": [{"drift": "sum", "diagonal": True}],
    "GaussianPosthoc": [{"parts": {"user": 0.5, "item": 0.1}}],
    "UCFedRec": [{"strength": 0.5, "hidden": (5,), "attributes": ("gender",)}],
    "FedNews": [{"rows": "touched", "scale": 0.033}],
    "FDPMF": [{"epsilon": 0.4, "sensitivity": 2.0}],
    "FGERAI": [{"features": False, "objective_epsilon": 0.4}],
    "Laplace": [{"rows": "all", "what": "change", "clip": 0.1, "epsilon": 20.0}],
    "Gaussian": [{"clip_by": "norm", "what": "change", "scale": 0.01, "parts": ("item", "mlp1")}],
    "PARD": [
        {"join": "add", "ip": "own", "reads": "positives", "public_share": 1.0},
        {"average_user": True, "attributes": ("gender",)},
        {"reference": True, "fp": "both"},
    ],
    "FedAvg": [
        {"weigh": "touched"},
        {"weigh": "examples"},
        {"server": "sgd", "server_lr": 0.5},
        {"sends": "gradients", "server": "adam", "server_lr": 0.05, "server_halves": {"item": 2}},
    ],
}
ONCE = {"PARD", "FedAU2"}  # defences that a chain has room for once, with the same attributes


@dataclass(frozen=True)
class Case:
    """An entry with some options set.

    Attributes:
        name, entry, options: What is built.
        varied: Whether it is a variant, beside one of the same entry that is none.
    """

    name: str
    entry: Callable[..., Any]
    options: dict[str, Any]
    varied: bool = False

    def build(self, *arguments: int) -> Any:
        """The entry itself; a model is given the number of items and of seats."""
        return self.entry(*arguments, **self.options)

    def __str__(self) -> str:
        return "-".join([self.name, *(str(value) for value in self.options.values())])


def cases(kind: str) -> list[Case]:
    """Every entry of a kind with small defaults, and its variants."""
    found = []
    for name, entry in entries(kind).items():
        taken = inspect.signature(entry).parameters
        sizes = {**SMALL, **SIZES.get(name, {})}
        small = {option: value for option, value in sizes.items() if option in taken}
        found += [
            Case(name, entry, {**small, **options}, varied=bool(options))
            for options in [{}, *VARIANTS.get(name, [])]
        ]
    return found


def plain_first(*columns: Sequence[Any], varied: int = 0) -> list[Any]:
    """Every combination for `parametrize`; slow are those in which more than `varied` cases are variants."""
    return [
        pytest.param(*row, id="-".join(map(str, row)), marks=pytest.mark.slow if count > varied else ())
        for row in product(*columns)
        for count in [sum(isinstance(one, Case) and one.varied for one in row)]
    ]


@dataclass(frozen=True)
class Scene:
    """Some devices of one model in the middle of a round, all weights random."""

    model: Recommender
    params: Params  # [c, …], item tables local
    device: Device
    axes: Device

    @classmethod
    def of(cls, model: Recommender, clients: Clients, *, size: int = 4, seed: int = 0) -> Scene:
        """A step of a pass in which some clients are padded."""
        cohort = torch.tensor(sorted(range(len(clients)), key=lambda k: -clients.sizes[k]))
        keys = Keys.seed(seed).fold(clients.tags[cohort])
        plan = Plan(rounds=1, negatives=3, precision="float64")
        drawn = model.examples(Draw(clients, cohort, keys, plan, Letter(0, {})))
        batch = next(step.batch for step in drawn.steps(0, size) if not step.batch.weight.all())
        active = len(batch.weight)
        own = Keys(keys.value[:active])
        params = {}
        for name in model.names():
            shape = model.get_parameter(name).shape
            if model.parts[part_of(name)].rows == "item":
                shape = torch.Size([batch.rows.shape[1], *shape[1:]])
            params[name] = 0.5 * own.fold(name).normal(*shape, dtype=torch.float64)
        sent = {
            n: Keys.seed(1).fold(n).normal(*model.get_parameter(n).shape, dtype=torch.float64)
            for n in model.names(Scope.SHARED)
        }
        number = torch.tensor([3, 1])
        device = Device(batch, sent, {}, own, number[0], number[1])
        return cls(model, params, device, Device(0, dict.fromkeys(sent), None, 0, None, None))  # type: ignore[arg-type]

    def mapped(self, function: Callable[..., Tensor], params: Params | None = None) -> Tensor:
        """``function(model, device)`` for every device."""

        def alone(params: Params, device: Device) -> Tensor:
            return bind(self.model, params, function, device)  # type: ignore[no-any-return]

        given = self.params if params is None else params
        return vmap(alone, in_dims=(0, self.axes))(given, self.device)

    def slopes(self, loss: Callable[[Params], Tensor]) -> Params:
        """The gradient of a loss ``[c]`` with respect to every weight that it reads."""
        leaves = {name: value.detach().requires_grad_() for name, value in self.params.items()}
        found = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()), allow_unused=True)
        return {name: slope for name, slope in zip(leaves, found, strict=True) if slope is not None}
