"""Gaussian: the noise is what it says it is, and a norm is that of what really travels."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.test_engine_equals_loop import MODELS, WORLDS, compare_upload
from tests.noisy import Noised, device, faults, noise_of, other_keys
from tests.worlds import checkerboard, federation, largest, phones, run, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows, map_values
from veilrec.base.plan import Plan
from veilrec.defence import Defence
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.noise.sampling import Sampler
from veilrec.errors import BadInput, ClientFailed
from veilrec.model import Device
from veilrec.models.fedmf import FedMF
from veilrec.privacy.mechanism import DELTA, gaussian_epsilon, gaussian_ratio
from veilrec.protocols.fedavg import FedAvg
from veilrec.wire.codec import one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("scale", [0.025, 0.035, 1.0])
def test_the_noise_has_its_scale_and_its_shape(scale: float, dtype: torch.dtype) -> None:
    defence = Gaussian(scale=scale)
    assert faults("gaussian", scale, *(noise_of(defence, round=r, dtype=dtype) for r in (0, 1))) == []


def a_variance(patch: pytest.MonkeyPatch) -> Gaussian:
    return Gaussian(scale=math.sqrt(0.02))


def another_law(patch: pytest.MonkeyPatch) -> Gaussian:
    original = Sampler.draw

    def draw(self: Sampler, some: slice) -> Any:
        self.kind, self.scale = "laplace", np.asarray(0.02 * math.sqrt(2 / math.pi) / 2**-16)
        return original(self, some)

    patch.setattr(Sampler, "draw", draw)
    return Gaussian(scale=0.02)


def the_same_in_every_round(patch: pytest.MonkeyPatch) -> Gaussian:
    other_keys(patch, lambda key: key * np.uint64(0))
    return Gaussian(scale=0.02)


PLANTED = {a_variance: "size", another_law: "shape", the_same_in_every_round: "rounds"}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], Gaussian], monkeypatch: pytest.MonkeyPatch
) -> None:
    defence = plant(monkeypatch)
    found = faults("gaussian", 0.02, *(noise_of(defence, round=r) for r in (0, 1)))
    assert any(PLANTED[plant] in line for line in found), found


# ε and σ.


@pytest.mark.parametrize("delta", [DELTA, 1e-9, 0.01])
def test_epsilon_agrees_with_dp_accounting(delta: float) -> None:
    ratios = torch.tensor([0.01, 0.1, 1.0, 5.0, 50.0, 1e3, 1e5], dtype=torch.float64)
    for ratio, epsilon in zip(ratios.tolist(), gaussian_epsilon(ratios, delta).tolist(), strict=True):
        known = dp_accounting.get_epsilon_gaussian(1 / ratio, delta)
        assert epsilon == pytest.approx(known, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0, 60.0])
def test_the_scale_agrees_with_dp_accounting(epsilon: float) -> None:
    known = dp_accounting.get_sigma_gaussian(epsilon, DELTA)
    assert 1 / gaussian_ratio(epsilon) == pytest.approx(known, rel=1e-9)
    assert float(Gaussian(clip=0.25, epsilon=epsilon).noise.scale) == pytest.approx(0.5 * known, rel=1e-9)


@given(st.floats(1e-3, 1e4), st.floats(1.0001, 10))
@settings(max_examples=50, deadline=None)
def test_more_sensitivity_costs_more(ratio: float, factor: float) -> None:
    less, more = gaussian_epsilon(torch.tensor([ratio, ratio * factor], dtype=torch.float64)).tolist()
    assert 0 <= less < more or more == 0


# The norm.


def norm_of(message: Message, base: Message | None = None) -> float:
    """Of all that travels, in float64, against what came."""
    squares = 0.0
    for name, value in message.items():
        sent = value.value[value.row >= 0] if isinstance(value, Rows) else value
        came: Any = 0.0 if base is None or name not in base else base[name]
        if isinstance(value, Rows) and isinstance(came, Tensor):
            came = came[value.row[value.row >= 0]]
        squares += float((sent.double() - came).square().sum())
    return math.sqrt(squares)


@pytest.mark.parametrize("clip", [1e-3, 0.05, 0.3])
def test_the_norm_of_an_upload_is_bounded(clip: float) -> None:
    """Users learn different amounts: some are clipped and some are not, and padding counts for nobody."""
    defence = Gaussian(clip=clip, clip_by="norm", scale=0.0)
    fed, plain = (
        federation(WORLDS["short"](), FedMF(120, dim=8, user="exposed"), None, d, lr=3.0, chunk=100)
        for d in (defence, Defence())
    )
    (_, seen), (_, free) = uploads_of(fed), uploads_of(plain)
    clipped = 0
    for client, (exchange, k) in seen.items():
        message, other = one(exchange.received.values, k), one(*there(free[client]))
        assert Fraction(norm_of(message)) <= Fraction(clip)
        if norm_of(other) <= clip * (1 - 1e-5):
            assert norm_of(message) == pytest.approx(norm_of(other), rel=1e-6)
        else:
            clipped += 1
            assert norm_of(message) == pytest.approx(clip, rel=1e-5)
    assert clipped > 0
    assert clip < 0.3 or clipped < len(seen)


def there(found: tuple[Any, int]) -> tuple[Message, int]:
    return found[0].received.values, found[1]


def test_the_norm_of_a_change_is_bounded() -> None:
    fed = federation(
        phones(checkerboard()),
        FedMF(24, dim=4),
        None,
        Gaussian(0.001, 0.0, clip_by="norm", what="change"),
        lr=2.0,
    )
    base = {**fed.start().server}
    for exchange, k in uploads_of(fed)[1].values():
        assert norm_of(one(exchange.received.values, k), base) == pytest.approx(0.001, rel=1e-3)


class Spoil(Defence):
    """One value is no number of use, and a defence of ours comes after it."""

    def __init__(self, value: float) -> None:
        self.value = value

    def on_upload(self, upload: Message, device: Device) -> Message:
        spoilt = map_values(upload, lambda name, value: torch.where(value == value.max(), self.value, value))
        return Gaussian(clip_by="norm").on_upload(spoilt, device)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_has_no_norm_is_refused(value: float) -> None:
    with pytest.raises(ClientFailed, match="not finite") as told:
        run(federation(phones(checkerboard()), FedMF(24, dim=4), None, Spoil(value)))
    assert told.value.code == 2


def test_zero_stays_zero_without_noise() -> None:
    sent = Gaussian(clip_by="norm", scale=0.0).on_upload({"x": torch.zeros(3, 2)}, device(Keys.seed(0)))["x"]
    assert isinstance(sent, Tensor)
    assert torch.equal(sent, torch.zeros(3, 2))


NOISES: dict[str, tuple[Gaussian, dict[str, Any]]] = {
    "value": (Gaussian(clip=0.02, scale=0.05, rows="all"), {"clip": 0.02, "scale": 0.05, "rows": "all"}),
    "norm": (
        Gaussian(clip=0.05, scale=0.01, clip_by="norm", what="change"),
        {"clip": 0.05, "scale": 0.01, "by": "norm", "what": "change"},
    ),
}


@pytest.mark.parametrize("chunk", [1, 100])
@pytest.mark.parametrize("name", NOISES)
def test_the_engine_equals_the_loop(name: str, chunk: int) -> None:
    defence, how = NOISES[name]
    entry, options, shape = MODELS["mlp"]
    world = WORLDS["short"]()
    plan = Plan(workers=1, evaluate_every=10**6, batch=16, lr=0.5, chunk=chunk)
    loop = Noised(world, shape, plan, FedAvg(), seed=3, noise={"kind": "gaussian", **how})
    fields = {field: getattr(plan, field) for field in Plan.__dataclass_fields__}
    recommender = entry(world.log.n_items, 1, dim=shape.dim, **options)
    engine = federation(world, recommender, FedAvg(), defence, seed=3, **fields)
    uploads = loop.round()
    state, seen = uploads_of(engine)
    bar = 2 * loop.step + 1e-5  # what is rounded to a lattice may fall on either side
    for weight, value in loop.server.items():
        assert largest(state.server[weight], value) < bar
    for client, upload in uploads.items():
        exchange, place = seen[client]
        compare_upload(one(exchange.received.values, place), upload, bar)


def test_amounts_that_mean_nothing() -> None:
    for options in ({"clip": -1.0}, {"scale": -0.1}, {"epsilon": -1.0}, {"scale": 1.0, "epsilon": 1.0}):
        with pytest.raises(BadInput, match=r"^defence"):
            Gaussian(**options)  # type: ignore[arg-type]
