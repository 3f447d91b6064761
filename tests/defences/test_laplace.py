"""Laplace: the noise is what it says it is, and hangs on nothing that it should not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.test_engine_equals_loop import MODELS, WORLDS, compare_upload
from tests.noisy import (
    CLIP,
    Noised,
    blurred,
    clients,
    device,
    faults,
    noise_of,
    number,
    other_keys,
    values,
)
from tests.worlds import checkerboard, federation, largest, phones, run, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows, map_values
from veilrec.base.plan import Plan
from veilrec.defence import Defence, chain
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise.noisy import Noise
from veilrec.defences.noise.sampling import Sampler, Seeded
from veilrec.errors import BadInput, ClientFailed
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import one

SCALES = [0.017, 0.02, 0.025, 0.033, 1.0]


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.float32, id="single"),
        pytest.param(torch.float64, id="double", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("scale", SCALES)
def test_the_noise_has_its_scale_and_its_shape(scale: float, dtype: torch.dtype) -> None:
    defence = Laplace(scale=scale)
    assert faults("laplace", scale, *(noise_of(defence, round=r, dtype=dtype) for r in (0, 1))) == []


@pytest.mark.parametrize("scale", SCALES)
def test_one_device_alone_draws_the_same(scale: float) -> None:
    defence, plain = Laplace(scale=scale), values(25)
    together = blurred(defence, {**plain}, clients(25))
    for k in range(25):
        alone = defence.on_upload({n: v[k] for n, v in plain.items()}, device(Keys(clients(25).value[k])))
        assert all(torch.equal(alone[n], together[n][k]) for n in plain)


def test_epsilon_gives_the_scale() -> None:
    assert Laplace(clip=0.5, epsilon=40).noise.scale == Fraction(1, 40)
    assert Laplace(clip=0.5, epsilon=30).noise.scale == Fraction(1, 30)
    assert Laplace(clip=0.1, scale=0.02).noise.scale == Fraction(1, 50)
    assert Laplace().noise.scale == Fraction(1, 40)


# Planted bugs: each must be found by the same judge.


def too_little(patch: pytest.MonkeyPatch) -> Laplace:
    return Laplace(scale=0.02 / math.sqrt(2))


def swapped(patch: pytest.MonkeyPatch) -> Laplace:
    return Laplace(scale=2 * CLIP / 0.02)


def before_the_clip(patch: pytest.MonkeyPatch) -> Laplace:
    def apply(self: Noise, upload: Message, device: Any) -> Message:
        wide = replace(self, clip=Fraction(10)).apply_(upload, device)  # type: ignore[attr-defined]
        return map_values(wide, lambda name, value: value.clamp(-CLIP, CLIP))

    patch.setattr(Noise, "apply_", Noise.apply, raising=False)
    patch.setattr(Noise, "apply", apply)
    return Laplace(scale=0.02)


def skipped(patch: pytest.MonkeyPatch) -> Laplace:
    return Laplace(scale=0.02, parts=("first", "middle"))


def planted_keys(patch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> Laplace:
    """Other keys than those of the clients and weights."""
    other_keys(patch, change)
    return Laplace(scale=0.02)


def the_same_for_all(patch: pytest.MonkeyPatch) -> Laplace:
    return planted_keys(patch, lambda key: np.broadcast_to(key[:1], key.shape))


def the_same_for_all_tensors(patch: pytest.MonkeyPatch) -> Laplace:
    return planted_keys(patch, lambda key: key * np.uint64(0))


def one_column(patch: pytest.MonkeyPatch) -> Laplace:
    original = Seeded.bits

    def first(self: Seeded, some: slice, words: Any, spare: Any) -> Any:
        drawn = original(self, some, words, spare)
        drawn[:] = drawn[:, :1].copy()
        return drawn

    patch.setattr(Seeded, "bits", first)
    return Laplace(scale=0.02)


def another_law(patch: pytest.MonkeyPatch) -> Laplace:
    """Magnitudes spread evenly, of the same mean."""
    original = Sampler.logarithms

    def logarithms(self: Sampler, some: slice) -> Any:
        size, bits = original(self, some)
        size[:] = -2 / math.log(2) * np.exp2(size)
        return size, bits

    patch.setattr(Sampler, "logarithms", logarithms)
    return Laplace(scale=0.02)


PLANTED = {
    too_little: "size",
    swapped: "size",
    before_the_clip: "mean|size",
    skipped: "last.bias: size",
    the_same_for_all: "clients",
    the_same_for_all_tensors: "tensors|rounds|clients",
    one_column: "coordinates",
    another_law: "shape",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], Laplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    defence = plant(monkeypatch)
    found = faults("laplace", 0.02, *(noise_of(defence, round=r) for r in (0, 1)))
    assert any(word in line for line in found for word in PLANTED[plant].split("|")), found


# The bound.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("clip", [0.1, 0.5, 1 / 3, 1e-3])
def test_nothing_is_beyond_the_bound_before_the_noise(clip: float, dtype: torch.dtype) -> None:
    plain = Keys.seed(3).normal(1000, 1000, dtype=dtype) * 10.0 ** Keys.seed(4).integers(12, 1000, 1).sub(8)
    plain[0, :4] = torch.tensor([math.inf, -math.inf, clip, -clip])
    sent = Laplace(clip=clip, scale=0.0).on_upload({"x": plain}, device(Keys.seed(0)))["x"]
    assert isinstance(sent, Tensor)
    assert Fraction(float(sent.abs().max())) <= Fraction(clip)
    within = plain.abs().double() < clip * (1 - 1e-7)
    assert torch.equal(sent[within], plain[within])
    assert torch.equal(sent[~within].sign(), plain[~within].sign())
    assert float(sent[~within].abs().min()) > clip * (1 - 1e-6)


@dataclass(frozen=True)
class Spoil(Defence):
    """One value of one upload goes wrong before the noise."""

    value: float

    def on_upload(self, upload: Message, device: Any) -> Message:
        item = upload["item"]
        assert isinstance(item, Rows)
        where = torch.zeros_like(item.value).index_fill(0, torch.tensor([0]), 1.0) > 0
        return {**upload, "item": Rows(item.row, torch.where(where, self.value, item.value))}


def test_no_number_is_refused() -> None:
    fed = fed_of(chain(Spoil(math.nan), Laplace()))
    with pytest.raises(ClientFailed, match="not finite") as told:
        run(fed)
    assert told.value.code == 2


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinity_is_clipped(value: float) -> None:
    _, seen = uploads_of(fed_of(chain(Spoil(value), Laplace(scale=0.0))))
    exchange, k = seen[0]
    item = one(exchange.received.values, k)["item"]
    assert isinstance(item, Rows)
    assert torch.equal(item.value[0], torch.full((4,), math.copysign(0.5, value)))


# What the noise hangs on.


def fed_of(defence: Defence, protocol: FedAvg | None = None, model: Any = None, **plan: Any) -> Federation:
    """Devices that learn nothing, unless told otherwise: what leaves is what came, and noise."""
    settings = {"lr": 0.0, "chunk": 5, **plan}
    world = phones(checkerboard())
    return federation(world, model or FedMF(24, dim=4, user="exposed"), protocol, defence, **settings)


def sent_by(fed: Federation, rounds: int = 1) -> dict[int, Message]:
    return {k: one(e.received.values, place) for k, (e, place) in uploads_of(fed, rounds)[1].items()}


def meant(value: Tensor | Rows) -> dict[int, Tensor]:
    """The rows that travel, by number."""
    if isinstance(value, Rows):
        return {int(r): v for r, v in zip(value.row, value.value, strict=True) if r >= 0}
    return dict(enumerate(value))


@pytest.mark.parametrize("plan", [{"chunk": 1}, {"chunk": 100}, {"cohort": 0.4}, {"workers": 2}], ids=str)
def test_who_else_is_there_changes_no_draw(plan: dict[str, Any]) -> None:
    ours, theirs = sent_by(fed_of(Laplace())), sent_by(fed_of(Laplace(), **plan))
    assert len(theirs) == (10 if "cohort" in plan else 24)
    for client, message in theirs.items():
        for name, value in message.items():
            a, b = meant(ours[client][name]), meant(value)
            assert a.keys() == b.keys()
            assert all(torch.equal(a[row], b[row]) for row in a)


def test_other_rows_beside_it_change_no_row() -> None:
    """More negatives, more touched rows: those that both have are noised alike; and all rows, too."""
    few, many = (sent_by(fed_of(Laplace(), negatives=n)) for n in (1, 4))
    every = sent_by(fed_of(Laplace(rows="all")))
    for client in few:
        a, b, c = (meant(sent[client]["item"]) for sent in (few, many, every))
        assert a.keys() < b.keys() <= c.keys() == set(range(24))
        assert all(torch.equal(a[row], b[row]) for row in a)
        assert all(torch.equal(b[row], c[row]) for row in b)


def test_the_number_in_a_row_and_column_is_that_of_the_whole_table() -> None:
    fed = fed_of(Laplace(rows="all", clip=100.0, scale=0.3))
    sent, state = sent_by(fed), fed.start()
    for client in (0, 7, 23):
        key = int(fed.fleet.client_keys(torch.tensor([client]), 0).fold("upload").fold("item").value) % 2**64
        drawn = [[number("laplace", key, row, column, 4) for column in range(4)] for row in range(24)]
        value = sent[client]["item"]
        assert isinstance(value, Rows)
        assert torch.equal(value.row, torch.arange(24))
        assert largest(value.value, state.server["item"] + 0.3 * torch.tensor(drawn)) < 1.5 * 2**-12


def test_in_a_chain_two_of_a_kind_draw_apart() -> None:
    once, twice = (sent_by(fed_of(d))[3] for d in (Laplace(), chain(Laplace(), Laplace())))
    assert not any(torch.equal(a, meant(twice["item"])[r]) for r, a in meant(once["item"]).items())


# What is sent.


def test_whole_tables_hold_what_was_not_touched() -> None:
    defence = Laplace(rows="all", clip=50.0, scale=0.0)
    fed = fed_of(defence, lr=0.5, negatives=1)
    table = fed.start().server["item"]
    for client, message in sent_by(fed).items():
        touched = meant(sent_by(fed_of(Laplace(clip=50.0, scale=0.0), lr=0.5, negatives=1))[client]["item"])
        for row, value in meant(message["item"]).items():
            assert torch.equal(value, touched.get(row, table[row]))
        break


def test_whole_tables_of_gradients_are_zero_where_nothing_was_touched() -> None:
    protocol = FedAvg(sends="gradients", server="sgd")
    defence = Laplace(rows="all", what="gradients", clip=50.0, scale=0.0)
    whole = sent_by(fed_of(defence, protocol, negatives=1))[2]["item"]
    touched = meant(sent_by(fed_of(Defence(), protocol, negatives=1))[2]["item"])
    for row, value in meant(whole).items():
        assert torch.equal(value, touched.get(row, torch.zeros(4)))


def test_a_change_is_clipped_against_what_was_received() -> None:
    fed = fed_of(Laplace(what="change", clip=0.001, scale=0.0), lr=5.0)
    plain, table = sent_by(fed_of(Defence(), lr=5.0)), fed.start().server["item"]
    for client, message in sent_by(fed).items():
        for row, value in meant(message["item"]).items():
            moved = meant(plain[client]["item"])[row] - table[row]
            assert largest(value, table[row] + moved.clamp(-0.001, 0.001)) < 1e-7
        own = meant(plain[client]["user"])[0]
        assert largest(meant(message["user"])[0], own.clamp(-0.001, 0.001)) < 1e-9


def test_only_the_parts_that_are_named_are_changed() -> None:
    model = FedNCF(24, dim=4, head=(6,), user="exposed")
    plain, sent = (sent_by(fed_of(d, model=model))[5] for d in (Defence(), Laplace(parts=("mlp1", "user"))))
    for name in plain:
        same = all(torch.equal(a, meant(sent[name])[row]) for row, a in meant(plain[name]).items())
        assert same != (name.split(".")[0] in ("mlp1", "user")), name


def test_examples_are_in_the_clear_where_they_are_counted() -> None:
    exchange, place = uploads_of(fed_of(Laplace(), FedAvg(weigh="examples")))[1][4]
    assert exchange.received.values.get("examples") is not None
    assert int(exchange.received.values.get("examples")[place]) == 10
    exchange, place = uploads_of(fed_of(Laplace()))[1][4]
    assert exchange.received.values.get("examples") is None


# Against a loop that does it number by number.

NOISES: dict[str, tuple[Laplace, dict[str, Any]]] = {
    "touched": (Laplace(clip=0.02, scale=0.05), {"clip": 0.02, "scale": 0.05}),
    "all": (Laplace(clip=0.02, scale=0.05, rows="all"), {"clip": 0.02, "scale": 0.05, "rows": "all"}),
    "change": (
        Laplace(clip=0.01, epsilon=1.0, what="change"),
        {"clip": 0.01, "scale": 0.02, "what": "change"},
    ),
}


@pytest.mark.parametrize(
    ("model", "chunk"),
    [
        ("mf", 1),
        pytest.param("mf", 100, marks=pytest.mark.slow),
        pytest.param("mlp", 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", NOISES)
def test_the_engine_equals_the_loop(name: str, model: str, chunk: int) -> None:
    defence, how = NOISES[name]
    entry, options, shape = MODELS[model]
    world = WORLDS["short"]()
    plan = Plan(workers=1, evaluate_every=10**6, batch=16, lr=0.5, chunk=chunk)
    loop = Noised(world, shape, plan, FedAvg(), seed=3, noise={"kind": "laplace", **how})
    settings = {field: getattr(plan, field) for field in Plan.__dataclass_fields__}
    recommender = entry(world.log.n_items, 1, dim=shape.dim, **options)
    engine = federation(world, recommender, FedAvg(), defence, seed=3, **settings)
    uploads = [loop.round() for _ in range(2)][-1]
    state, seen = uploads_of(engine, 2)
    bar = 2 * loop.step + 1e-5  # what is rounded to a lattice may fall on either side
    for weight, value in loop.server.items():
        assert largest(state.server[weight], value) < bar
    for client, upload in uploads.items():
        exchange, place = seen[client]
        compare_upload(one(exchange.received.values, place), upload, bar)


# What is refused.


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"clip": 0.0}, "defence.clip"),
        ({"clip": math.nan}, "defence.clip"),
        ({"scale": -1.0}, "defence.scale"),
        ({"scale": math.inf}, "defence.scale"),
        ({"epsilon": 0.0}, "defence.epsilon"),
        ({"scale": 0.1, "epsilon": 1.0}, "defence.epsilon"),
    ],
)
def test_amounts_that_mean_nothing(options: dict[str, float], key: str) -> None:
    with pytest.raises(BadInput, match=f"^{key}: "):
        Laplace(**options)  # type: ignore[arg-type]


def test_what_does_not_fit_the_protocol() -> None:
    gradients = FedAvg(sends="gradients", server="sgd")
    for defence, protocol in ((Laplace(), gradients), (Laplace(what="gradients"), FedAvg())):
        with pytest.raises(BadInput, match=r"^defence\.what: .* devices send"):
            defence.declares(FedMF(24, dim=4), protocol)
    with pytest.raises(
        BadInput, match=r'^defence\.parts: no part "items" is uploaded; did you mean "item"\?$'
    ):
        Laplace(parts=("items",)).declares(FedMF(24, dim=4), FedAvg())


def test_chunks_are_kept_small_where_tables_go_up_whole() -> None:
    cpu, model = torch.device("cpu"), FedMF(24, dim=64, user="exposed")
    for defence, count in (
        (Laplace(), 0),
        (chain(Laplace(rows="all"), Laplace()), 24 * 64),
        (Laplace(rows="all", parts=("user",)), 0),
    ):
        assert federation(phones(checkerboard()), model, None, defence).fleet.beside == count
    assert Plan().chunk_on(cpu, 16) == 256
    assert Plan().chunk_on(cpu, 16, 64_000 * 4) == 65
    assert Plan().chunk_on(cpu, 16, 10**9) == 1
    assert Plan(chunk=7).chunk_on(cpu, 16, 10**9) == 7
