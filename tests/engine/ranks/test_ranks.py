"""Ranks: a run whose devices live in several processes ends where it ends in one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.ranks.pipes import ranked
from tests.worlds import SHORT, checkerboard, contents, federation, largest, phones, ragged, silos
from veilrec.base.params import Params, Rows
from veilrec.clients import Clients
from veilrec.defence import chain
from veilrec.defences.apm import APM
from veilrec.defences.fedau2 import FedAU2
from veilrec.defences.laplace import Laplace
from veilrec.defences.pard import PARD
from veilrec.engine.evaluation import Scored
from veilrec.engine.probe import probe, user_vectors
from veilrec.engine.ranks.homes import homes
from veilrec.erasers.gaussian_posthoc import GaussianPosthoc
from veilrec.errors import BadInput, ClientFailed
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.models.fedvae import FedVAE
from veilrec.privacy.ledger import Ledger
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.traffic import Traffic
from veilrec.wire.uploads import Exchange

Make = Callable[[], Federation]
ROUNDING = 1e-6


def short() -> Clients:
    return phones(ragged(SHORT, 120))


def board(consent: float = 0.5) -> Clients:
    return phones(checkerboard(), consent)


def fedncf(n: int = 120, **options: Any) -> FedNCF:
    return FedNCF(n, dim=4, head=(6,), **options)


def made(clients: Callable[[], Clients], model: Callable[[], Any], *parts: Any, **plan: Any) -> Make:
    return lambda: federation(clients(), model(), *parts, **{"lr": 0.3, "batch": 8, "chunk": 2, **plan})


ADAM = FedAvg(server="adam", server_lr=0.05)
SLOPES = FedAvg(sends="gradients", server="adam", server_lr=0.05)
NOISE = Laplace(clip=0.3, scale=0.01)
CASES: dict[str, Make] = {
    "mean": made(short, fedncf),
    "adam": made(short, fedncf, ADAM),
    "double": made(short, fedncf, ADAM, precision="float64"),
    "examples": made(short, fedncf, FedAvg(weigh="examples")),
    "touched": made(short, lambda: FedMF(120, dim=4), FedAvg(weigh="touched")),
    "drawn": made(short, fedncf, cohort=0.6),
    "dealt": made(short, fedncf, cohort=0.5, order="deal"),
    "sums": made(short, fedncf, forwards=3),
    "one sum": made(short, fedncf, forwards="all"),
    "slopes": made(short, fedncf, SLOPES, batch=4096),
    "own tables": made(short, lambda: FedRAP(120, dim=4), optimiser="adam", lr=0.01),
    "on disk": made(short, fedncf, keeps="disk"),
    "apm": made(board, lambda: fedncf(24, user="exposed"), None, APM(low=30, high=60, rows="all")),
    "noise": made(board, lambda: fedncf(24, user="exposed"), None, NOISE),
    "posts": made(board, lambda: fedncf(24), None, PARD()),
    "chain": made(board, lambda: fedncf(24, user="exposed"), None, chain(PARD(), NOISE)),
    "dense": made(board, lambda: FedVAE(24, hidden=8, dim=4), SLOPES, FedAU2(head="dsvae"), batch=4096),
    "one long log": made(lambda: phones(ragged((38, 1, 1, 1, 1), 120)), fedncf, chunk=1),
    "silos": made(lambda: silos(checkerboard(), 6), lambda: FedNCF(24, 4, dim=4, head=(6,))),
}

QUICK = {"adam", "drawn", "sums", "own tables", "on disk", "posts", "one long log", "silos"}


def outcome(fed: Federation, n: int = 3) -> tuple[State, Params, Scored, dict[int, dict[str, Tensor]]]:
    """State, what devices keep, what users are shown, and every upload by client and round."""
    seen: dict[int, dict[str, Tensor]] = {}

    def watch(exchange: Exchange) -> None:
        for k, client in enumerate(exchange.received.cohort.tolist()):
            key = exchange.round * 1000 + client
            assert key not in seen
            values = exchange.received.values
            seen[key] = {
                name: v.value[k][v.row[k] >= 0] if isinstance(v, Rows) else v[k] for name, v in values.items()
            }

    *_, (state, _) = fed.rounds(fed.start(), until=n, watch=[watch])
    return state, held(fed), fed.evaluate(state), seen


def held(fed: Federation) -> Params:
    """What devices keep, in the order of the clients."""
    devices = fed.fleet.devices
    return devices.get(devices.clients().sort().values)


def alike(one: Params, other: Params, bound: float = ROUNDING) -> bool:
    return one.keys() == other.keys() and all(largest(one[name], other[name]) <= bound for name in one)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=() if size == 2 and name in QUICK else pytest.mark.slow)
        for name in CASES
        for size in (2, 3)
    ],
)
def test_several_ranks_end_where_one_process_does(name: str, size: int) -> None:
    state, kept, scored, seen = outcome(CASES[name]())
    with ranked(CASES[name], size) as fed:
        state2, kept2, scored2, seen2 = outcome(fed)
    assert alike(state.server, state2.server)
    assert alike(state.memory, state2.memory)
    assert alike(kept, kept2)
    assert torch.equal(state.posts.owner, state2.posts.owner)
    assert alike(state.posts.values, state2.posts.values)
    assert torch.equal(scored.user, scored2.user)
    assert alike(dict(scored.values), dict(scored2.values))
    assert seen.keys() == seen2.keys()
    assert all(alike(seen[key], seen2[key]) for key in seen)


@pytest.mark.parametrize("name", ["mean", "adam", "touched", "examples", "one sum"])
def test_where_everybody_takes_part_the_bits_are_the_same(name: str) -> None:
    """Homes are whole chunks then, and float32 weights add up in float64 without rounding."""
    state, kept, *_ = outcome(CASES[name]())
    with ranked(CASES[name], 3) as fed:
        state2, kept2, *_ = outcome(fed)
    assert all(torch.equal(state.server[name], state2.server[name]) for name in state.server)
    assert alike(kept, kept2, 0.0)


def test_a_fold_that_is_lost_on_the_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: without the second rank's part the end is another one."""
    state, *_ = outcome(CASES["mean"]())
    with ranked(CASES["mean"], 2) as fed:
        merged = type(fed.fleet)._merged
        monkeypatch.setattr(
            type(fed.fleet), "_merged", lambda self, folds, *rest: merged(self, folds[:1], *rest)
        )
        other, *_ = outcome(fed)
    assert not alike(state.server, other.server)


@pytest.mark.parametrize("name", ["noise", pytest.param("posts", marks=pytest.mark.slow), "own tables"])
def test_traffic_and_ledger_are_those_of_one_process(name: str) -> None:
    def counted(fed: Federation) -> list[Any]:
        fleet = fed.fleet
        down = fleet.protocol.letter(fleet.model, fleet.plan.dtype)
        watches = Traffic(down, len(fleet.clients), fleet.clients.n_seats), Ledger.of(fed)
        for _ in fed.rounds(fed.start(), until=3, watch=watches):
            watches[0].finish()
        return [watch.summary() for watch in watches]

    one = counted(CASES[name]())
    with ranked(CASES[name], 2) as fed:
        assert counted(fed) == one


@pytest.mark.parametrize("names", [(), ("item",)])
def test_values_that_nobody_reads_do_not_cross(names: tuple[str, ...]) -> None:
    """A counter asks for how many rows there are, a transcript for what is in them."""
    seen: dict[int, set[str]] = {}

    def watch(exchange: Exchange) -> None:
        assert (exchange.received.row_counts("item") > 0).all()
        seen.update({key: {*exchange.received.values} for key in exchange.received.cohort.tolist()})

    watch.reads = names  # type: ignore[attr-defined]
    with ranked(CASES["mean"], 2) as fed:
        away = (fed.fleet.home == 1).nonzero().squeeze(1).tolist()
        fed.run(fed.start(), rounds=1, watch=[watch])
    assert away
    assert all(seen[client] == set(names) for client in away)


@pytest.mark.parametrize("name", ["mean", "own tables", "apm"])
def test_a_probe_sees_what_it_sees_in_one_process(name: str) -> None:
    def probed(fed: Federation) -> dict[int, Params]:
        state = fed.run(fed.start(), rounds=2)
        found: dict[int, Params] = {-1: {"vectors": user_vectors(fed, state)}}
        for exchange in probe(fed, state):
            for k, client in enumerate(exchange.received.cohort.tolist()):
                found[client] = {
                    n: v[k] for n, v in exchange.received.values.items() if isinstance(v, Tensor)
                }
        return found

    one = probed(CASES[name]())
    with ranked(CASES[name], 2) as fed:
        other = probed(fed)
    assert one.keys() == other.keys()
    assert all(alike(one[key], other[key]) for key in one)


def test_a_probe_that_is_left_half_way_leaves_nothing_behind() -> None:
    end, kept, *_ = outcome(CASES["mean"]())
    with ranked(CASES["mean"], 2) as fed:
        letter = fed.letter(fed.start(), fed.able)
        some = fed.fleet.probe(letter)
        next(some)
        some.close()  # type: ignore[attr-defined]
        state, own, *_ = outcome(fed)
    assert alike(end.server, state.server)
    assert alike(kept, own)


def test_an_eraser_changes_what_devices_of_all_ranks_hold() -> None:
    def erased(fed: Federation) -> Params:
        state = fed.run(fed.start(), rounds=2)
        fed.erase(state, GaussianPosthoc({"user": 0.5}), fed.keys.fold("unlearn"))
        return held(fed)

    one = erased(CASES["mean"]())
    with ranked(CASES["mean"], 2) as fed:
        other = erased(fed)
    assert alike(one, other)
    assert not alike(one, outcome(CASES["mean"](), 2)[1])


@pytest.mark.parametrize("name", ["mean", "own tables", pytest.param("posts", marks=pytest.mark.slow)])
def test_a_checkpoint_goes_on_with_any_number_of_ranks(name: str) -> None:
    """What three ranks kept after two rounds, two ranks go on with, and one process, to the same end."""
    end, kept, *_ = outcome(CASES[name](), 4)
    with ranked(CASES[name], 3) as fed:
        half = fed.run(fed.start(), rounds=2)
        saved = contents(fed.fleet.devices)

    def goes_on(fed: Federation) -> tuple[State, Params]:
        fed.fleet.devices.restore(saved)
        *_, (state, _) = fed.rounds(half, until=4)
        return state, held(fed)

    with ranked(CASES[name], 2) as fed:
        ends = [goes_on(fed), goes_on(CASES[name]())]
    for state, own in ends:
        assert alike(end.server, state.server)
        assert alike(kept, own)


class Broken(FedAvg):
    """A protocol whose messages cannot be made on one of the ranks."""

    def pack(self, *parts: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():  # as `pipes` runs all but the leader
            raise ZeroDivisionError("planted")
        return super().pack(*parts)


def test_what_fails_on_a_device_elsewhere_ends_the_run_by_its_name() -> None:
    fed = made(short, fedncf, Broken())
    with pytest.raises(ClientFailed, match=r"user user \d, round 1, .*planted"), ranked(fed, 2) as both:
        both.run(both.start(), rounds=1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=4, max_size=30).filter(lambda s: sum(n > 0 for n in s) >= 4),
    st.data(),
)
def test_every_device_has_one_home_and_no_rank_has_none(sizes: list[int], data: st.DataObject) -> None:
    cohort = data.draw(st.sampled_from([1.0, 0.5]))
    fed = federation(phones(ragged(sizes, 60)), FedMF(60, dim=2), chunk=1, cohort=cohort)
    able = int((torch.tensor(sizes) > 0).sum())
    ranks = data.draw(st.integers(1, able))
    home = homes(fed.fleet, ranks)
    assert len(home) == len(sizes)
    assert set(home.tolist()) == set(range(ranks))
    assert torch.equal(home, homes(fed.fleet, ranks))
    load = torch.zeros(ranks).index_add(0, home, torch.tensor(fed.clients.sizes, dtype=torch.float32))
    assert float(load.max() - load.min()) <= max(fed.clients.sizes)


def test_whole_chunks_are_dealt_where_everybody_takes_part() -> None:
    fed = CASES["mean"]()
    home = homes(fed.fleet, 2)
    assert all(len(set(home[chunk].tolist())) == 1 for chunk in fed.fleet.chunks(fed.able))
    whole = CASES["drawn"]().fleet
    assert any(len(set(homes(whole, 2)[c].tolist())) == 2 for c in whole.chunks(whole.able))


def test_more_ranks_than_portions_are_refused() -> None:
    fed = CASES["mean"]().fleet
    with pytest.raises(BadInput, match=r"9 processes, and work for 4: .*; start 4, or set plan.chunk"):
        homes(fed, 9)
