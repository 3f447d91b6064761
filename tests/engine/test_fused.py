"""One backward pass for all devices gives what a copy for each gives, and is taken only where it may."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from tests.hooks import Add, Push
from tests.worlds import checkerboard, federation, largest, phones, run
from veilrec.base.params import Rows
from veilrec.defence import Defence, chain
from veilrec.defences.fedau2 import FedAU2
from veilrec.engine.fused import apart, read_by, summed
from veilrec.engine.probe import see
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.uploads import Exchange

GRADIENTS = FedAvg(sends="gradients", server="adam", server_lr=0.01)
ADVERSARY = {f"adversary_gender.{name}" for name in ("hidden.weight", "hidden.bias", "last.weight")}


def fed_of(defence: Defence | None = None, protocol: FedAvg = GRADIENTS, **plan: Any) -> Federation:
    settings: dict[str, Any] = {"batch": 64, "negatives": 0, "precision": "float64", "cohort": 0.5, **plan}
    return federation(phones(checkerboard()), FedVAE(24, hidden=7, dim=4), protocol, defence, **settings)


def sums_of(fed: Federation) -> frozenset[str]:
    """The weights of which only sums are needed, where nobody looks."""
    return summed(fed.fleet.task(), fed.clients.sizes, ())


class Batched(Push):
    """A penalty that is written for a cohort, and reads the client axis of all weights."""

    leads: ClassVar[frozenset[str]] = frozenset({"penalty"})

    def penalty(self, model: Any, device: Any) -> torch.Tensor:
        return model.get_parameter("encoder.bias").sum(-1)  # type: ignore[no-any-return]


class Sees:
    """A watch that says what it looks at, and keeps what it was shown."""

    def __init__(self, *reads: str) -> None:
        self.reads, self.shown = reads, list[Exchange]()

    def __call__(self, exchange: Exchange) -> None:
        self.shown.append(exchange)


@pytest.mark.parametrize("defence", [None, FedAU2(strength=5.0), FedAU2(trigger="continuous", head="plain")])
@pytest.mark.parametrize("chunk", [0, pytest.param(1, marks=pytest.mark.slow), 5])
def test_the_sum_is_the_sum_of_the_copies(defence: Defence | None, chunk: int) -> None:
    blind, open_eyed = fed_of(defence, chunk=chunk), fed_of(defence)
    one = run(blind, 3, watch=[Sees()])
    other = run(open_eyed, 3, watch=[lambda exchange: None])  # it does not say what it reads
    assert one.server.keys() == other.server.keys()
    assert all(largest(one.server[name], other.server[name]) < 1e-12 for name in one.server)
    assert all(largest(one.server[name], blind.start().server[name]) > 1e-4 for name in one.server)


def test_what_a_watch_reads_comes_device_by_device() -> None:
    sees, every = Sees(*ADVERSARY), Sees(*fed_of(FedAU2(attributes=("gender",))).model.names())
    for watch in (sees, every):
        run(fed_of(FedAU2(attributes=("gender",))), watch=[watch])
    shown = {name for exchange in sees.shown for name in exchange.received.values}
    assert shown == ADVERSARY
    assert all(not exchange.received.sums for exchange in every.shown)
    mine = {int(c): k for k, c in enumerate(sees.shown[0].received.cohort)}
    (theirs,) = every.shown if len(every.shown) == 1 else (every.shown[0],)
    for place, client in enumerate(theirs.received.cohort.tolist()):
        for name in ADVERSARY:
            alone, again = theirs.received.values[name], sees.shown[0].received.values[name]
            assert not isinstance(alone, Rows)
            assert not isinstance(again, Rows)
            assert largest(alone[place], again[mine[client]]) < 1e-12


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("weights differ after a step", {"protocol": FedAvg()}),
        ("rows are weighed one by one", {"protocol": FedAvg("gradients", "examples", "adam")}),
        ("two passes are two gradients", {"epochs": 2}),
        ("two steps are two gradients", {"batch": 2}),
        ("uploads are changed one by one", {"defence": Add()}),
        ("a batched penalty wants copies", {"defence": chain(FedAU2(), Batched())}),
    ],
)
def test_it_is_taken_only_where_it_is_equal(why: str, changes: dict[str, Any]) -> None:
    assert sums_of(fed_of(**changes)) == frozenset(), why


def test_it_is_for_models_that_move_everything() -> None:
    sparse = federation(phones(checkerboard()), FedNCF(24, dim=4, head=(6,)), GRADIENTS, batch=64)
    assert sums_of(sparse) == frozenset()
    assert sums_of(fed_of()) == set(fed_of().model.names())
    assert sums_of(fed_of(Push())) == set(fed_of().model.names())


def test_a_watch_that_says_nothing_reads_all() -> None:
    assert read_by([Sees("a"), Sees("b", "a")]) == {"a", "b"}
    assert read_by([Sees("a"), print]) is None


def test_copies_are_counted() -> None:
    model = FedVAE(24, hidden=7, dim=4)
    assert apart(model, ()) == sum(weight.numel() for weight in model.parameters())
    assert apart(model, {"encoder.weight"}) == apart(model, ()) - 24 * 7
    assert apart(FedNCF(24, dim=4), ()) == 0


def test_who_names_parts_is_shown_the_same_of_them() -> None:
    fed = fed_of(FedAU2(attributes=("gender",)))
    seen = see(fed, run(fed))
    (whole,), (some,) = list(seen.probe()), list(seen.probe({"adversary_gender"}))
    assert torch.equal(whole.received.cohort, some.received.cohort)
    assert set(some.received.values) == ADVERSARY
    assert set(whole.received.values) == set(fed.model.names())
    for name in ADVERSARY:
        one, other = whole.received.values[name], some.received.values[name]
        assert not isinstance(one, Rows)
        assert not isinstance(other, Rows)
        assert largest(one, other) < 1e-12
    assert not next(iter(seen.probe(()))).received.values
