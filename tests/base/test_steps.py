"""Every device steps as `torch.optim` would step it alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.base.steps import Stepper, rate_of

CLIENTS, STEPS = 4, 6
SHAPES = {"user": (1, 3), "item": (5, 3), "mlp1.bias": (2,)}
RATES = {"user": 0.3, "default": 0.05}


def numbers(tag: str | int, *, dtype: torch.dtype = torch.float64) -> Params:
    keys = Keys.seed(3).fold(tag)
    return {n: keys.fold(n).normal(CLIENTS, *shape, dtype=dtype) for n, shape in SHAPES.items()}


def ordinary(kind: str, weights: dict[str, Tensor], momentum: float) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": [w], "lr": RATES.get(n.split(".")[0], RATES["default"])} for n, w in weights.items()
    ]
    return torch.optim.Adam(groups) if kind == "adam" else torch.optim.SGD(groups, momentum=momentum)


@pytest.mark.parametrize(("kind", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-14), (torch.float32, 1e-5)])
def test_as_torch_does(kind: str, momentum: float, dtype: torch.dtype, bound: float) -> None:
    """Client k takes part in the first STEPS - k steps only, as the smaller clients of a chunk do."""
    stepper = Stepper(kind, RATES, momentum)  # type: ignore[arg-type]
    params = numbers("start", dtype=dtype)
    state = stepper.fresh(params)
    loners = [{n: w[k].clone() for n, w in params.items()} for k in range(CLIENTS)]
    optimisers = [ordinary(kind, own, momentum) for own in loners]
    for step in range(STEPS):
        active = CLIENTS if step < 3 else CLIENTS - (step - 2)
        gradients = {n: g[:active] for n, g in numbers(step, dtype=dtype).items()}
        stepper.step(params, gradients, state)
        for k in range(active):
            for name, weight in loners[k].items():
                weight.grad = gradients[name][k].clone()
            optimisers[k].step()
    for name, weight in params.items():
        for k in range(CLIENTS):
            assert float((weight[k] - loners[k][name]).abs().max()) <= bound, (name, k)


def test_state_is_kept_by_whoever_keeps_it() -> None:
    """Two runs of three steps with the state carried over are one run of six."""
    stepper = Stepper("adam", 0.1)
    once, twice = numbers("start"), numbers("start")
    state, kept = stepper.fresh(once), stepper.fresh(twice)
    for step in range(6):
        stepper.step(once, numbers(step), state)
    for half in (range(3), range(3, 6)):
        carried = {n: v.clone() for n, v in kept.items()}
        for step in half:
            stepper.step(twice, numbers(step), carried)
        kept = carried
    assert all(torch.equal(once[n], twice[n]) for n in once)
    assert all(torch.equal(state[n], kept[n]) for n in state)


def test_plain_descent_has_no_state() -> None:
    assert Stepper("sgd").fresh(numbers(0)) == {}
    assert set(Stepper("sgd", momentum=0.5).fresh(numbers(0))) == {f"m/{n}" for n in SHAPES}
    assert set(Stepper("adam").fresh(numbers(0))) == {f"{k}/{n}" for k in "mvt" for n in SHAPES}


def test_weights_without_a_gradient_stand_still() -> None:
    params = numbers("start")
    before = params["item"].clone()
    stepper = Stepper("adam", 0.1)
    stepper.step(params, {"user": numbers(1)["user"]}, stepper.fresh(params))
    assert torch.equal(params["item"], before)


@pytest.mark.parametrize(
    ("rates", "name", "rate"),
    [
        (0.5, "item", 0.5),
        ({"item": 0.1, "default": 0.2}, "item", 0.1),
        ({"item": 0.1, "default": 0.2}, "mlp1.weight", 0.2),
        ({"mlp1": 0.4}, "mlp1.weight", 0.4),
        ({"item": 0.1}, "user", 0.0),
    ],
)
def test_rates_by_part(rates: Any, name: str, rate: float) -> None:
    assert rate_of(rates, name) == rate
