"""What every protocol must do, whoever wrote it: the tests are run on all that the catalogue lists."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.contract import Case, cases
from tests.worlds import (
    SHORT,
    Both,
    begin,
    both,
    changed,
    checkerboard,
    contents,
    digest,
    federation,
    held,
    largest,
    phones,
    ragged,
    resume,
    run,
    silos,
    uploads_of,
)
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows, Scope
from veilrec.engine.devices.store import Store
from veilrec.engine.fleet import Terms
from veilrec.models.fedncf import FedNCF
from veilrec.protocol import Protocol, Pulse, Server, Shape, State, ignore
from veilrec.protocols.fedavg import Averaging, FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import check, decode, encode, one, size
from veilrec.wire.uploads import Exchange, Fold, Posts, Uploads

CASES = cases("protocols")


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["private", "exposed"])
def fed(case: Case, request: pytest.FixtureRequest) -> Federation:
    model = FedNCF(120, dim=4, head=(6,), user=request.param)
    return federation(
        phones(ragged(SHORT, 120)), model, case.build(), lr=0.5, batch=16, chunk=3, precision="float64"
    )


@pytest.fixture
def single(case: Case) -> Federation:
    """In float32, as people run it."""
    model = FedNCF(120, dim=4, head=(6,))
    return federation(phones(ragged(SHORT, 120)), model, case.build(), lr=0.5, batch=16, chunk=3)


def exchanges(fed: Federation) -> list[Exchange]:
    seen: list[Exchange] = []
    run(fed, watch=[seen.append])
    return seen


def message(uploads: Uploads, place: int) -> Message:
    return one(uploads.values, place)


def test_it_names_its_source(case: Case) -> None:
    assert "Paper" in (sys.modules[case.entry.__module__].__doc__ or "")
    assert isinstance(case.build(), Protocol)


def test_uploads_are_what_the_schema_declares_to_the_byte(fed: Federation) -> None:
    schema = fed.protocol.schema(fed.model, dtype=fed.plan.dtype)
    for exchange in exchanges(fed):
        for place in range(len(exchange.received.cohort)):
            sent = message(exchange.received, place)
            data = encode(sent)
            rows = {n: int((v.row >= 0).sum()) for n, v in sent.items() if isinstance(v, Rows)}
            assert len(data) == size(schema, rows)
            assert decode(data, schema).keys() == schema.keys()


def test_letters_are_what_is_declared(fed: Federation) -> None:
    letter = fed.protocol.letter(fed.model, fed.plan.dtype)
    for exchange in exchanges(fed):
        sent = {**exchange.sent.all, "round": torch.tensor(0, dtype=torch.int32)}
        check({name: sent[name] for name in letter}, letter)
        assert exchange.sent.all.keys() <= letter.keys()


def test_private_parts_never_leave(fed: Federation) -> None:
    """Neither by name, nor as bytes under another name."""
    private = set(fed.model.names(Scope.PRIVATE))
    assert private.isdisjoint(fed.protocol.schema(fed.model))
    state, seen = uploads_of(fed)
    own = held(fed, state)
    for client, (exchange, place) in seen.items():
        data = encode(message(exchange.received, place))
        assert private.isdisjoint(exchange.received.values)
        for name in private:
            assert own[name][client].numpy().tobytes() not in data
        if not private:  # exposed: then it must be there
            assert own["user"][client].numpy().tobytes() in data


def permuted(uploads: Uploads, order: Tensor) -> Uploads:
    values = {
        n: Rows(v.row[order], v.value[order]) if isinstance(v, Rows) else v[order]
        for n, v in uploads.values.items()
    }
    return replace(uploads, cohort=uploads.cohort[order], values=values)


def test_the_order_of_the_cohort_and_its_cuts_are_irrelevant(fed: Federation) -> None:
    received = [exchange.received for exchange in exchanges(fed)]
    state, keys = fed.start(), Keys.seed(0)
    letter = fed.letter(state, fed.able)

    def outcome(parts: list[Uploads]) -> dict[str, Tensor]:
        partial: Message = {}
        for part in parts:
            partial = fed.protocol.fold(fed.model, letter, partial, part)
        done = fed.server.finish(state, Fold(partial, Posts.none(), {}), keys, ignore)
        return {**done.server, **done.memory}

    straight = outcome(received)
    turned = outcome([permuted(u, Keys.seed(1).order(len(u.cohort))) for u in reversed(received)])
    single = outcome([permuted(u, torch.tensor([k])) for u in received for k in range(len(u.cohort))])
    for other in (turned, single):
        assert all(largest(straight[name], other[name]) < 1e-12 for name in straight)


def grouped(fed: Federation, parts: list[Uploads], cuts: list[int]) -> Message:
    """The merged partials of some groups of uploads; `cuts` says to which group each belongs."""
    letter, folded = fed.letter(fed.start(), fed.able), dict[int, Message]()
    for part, group in zip(parts, cuts, strict=True):
        folded[group] = fed.protocol.fold(fed.model, letter, folded.get(group, {}), part)
    merged: Message = {}
    for group in sorted(folded, reverse=True):
        merged = fed.protocol.merge(merged, folded[group])
    return merged


@pytest.fixture
def alone(single: Federation) -> list[Uploads]:
    """What each device uploads, by itself."""
    return [
        permuted(e.received, torch.tensor([k]))
        for e in exchanges(single)
        for k in range(len(e.received.cohort))
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_partials_are_the_same_in_any_grouping(
    single: Federation, alone: list[Uploads], data: st.DataObject
) -> None:
    """Also of float32 weights: what is added up is added up in float64."""
    cuts = data.draw(st.lists(st.integers(0, 3), min_size=len(alone), max_size=len(alone)))
    order = data.draw(st.permutations(range(len(alone))))
    whole = grouped(single, alone, [0] * len(alone))
    other = grouped(single, [alone[k] for k in order], cuts)
    assert whole.keys() == other.keys()
    for name, value in whole.items():
        found = other[name]
        assert isinstance(value, Tensor)
        assert isinstance(found, Tensor)
        assert value.dtype is torch.float64
        assert largest(value, found) <= 1e-12 * max(1.0, float(value.abs().max()))


@pytest.mark.parametrize("forwards", [2, 3, 7, "all"])
def test_sums_over_groups_of_devices_end_where_single_uploads_do(single: Federation, forwards: Any) -> None:
    one = run(single)
    groups: list[tuple[int, ...]] = []
    sums = changed(single, plan=replace(single.plan, forwards=forwards))
    letter = sums.letter(sums.start(), sums.able)
    groups.append(sums.fleet.round(letter, sums.able, Terms(forwards)).groups)
    assert sum(groups[0]) == len(sums.able)
    assert min(groups[0]) >= (len(sums.able) if forwards == "all" else forwards)
    other = run(sums)
    assert all(largest(one.server[name], other.server[name]) < 1e-6 for name in one.server)


def test_finishing_counts_the_round_and_leaves_the_old_state(fed: Federation) -> None:
    state = fed.start()
    copies = {name: value.clone() for name, value in state.server.items()}
    partial: Message = {}
    for exchange in exchanges(fed):
        partial = fed.protocol.fold(fed.model, exchange.sent, partial, exchange.received)
    done = fed.server.finish(state, Fold(partial, Posts.none(), {}), Keys.seed(0), ignore)
    assert (state.round, done.round) == (0, 1)
    assert all(torch.equal(state.server[name], value) for name, value in copies.items())
    assert any(not torch.equal(done.server[name], value) for name, value in copies.items())
    assert all(value.isfinite().all() for value in done.server.values())
    assert done.server.keys() == state.server.keys()


def test_starts_are_equal_and_by_seed(case: Case, fed: Federation) -> None:
    other = changed(fed, keys=Keys.seed(9))
    assert digest(begin(fed)) == digest(begin(fed)) != digest(begin(other))


def test_state_round_trips(fed: Federation) -> None:
    state = run(fed, 2)
    whole = run(fed, 4)
    store = Store(len(fed.clients), state.devices.fresh)
    store.restore(contents(state.devices))
    assert digest(resume(fed, replace(state, devices=store), 4)) == digest(whole)


def test_another_server_before_each_round_goes_on_to_the_same_bits(single: Federation) -> None:
    """What a server knows lies in its state; the state is its own, and not changed by the next one."""
    assert digest(run(single, 4)) == digest(anew(single, single.protocol, 4))


def anew(fed: Federation, protocol: Protocol, rounds: int) -> Both:
    """The state of both halves after some rounds, each of a server of its own."""
    state: State = fed.start()
    for _ in range(rounds):
        other = Federation(fed.fleet, protocol.make_server(fed.fleet.shape))
        state = next(done for done, _ in other.rounds(state, until=rounds + 1))
    return both(fed, state)


class Counting(Averaging):
    """A server with a fault: it counts its rounds by itself."""

    def finish(self, state: State, fold: Fold, keys: Keys, pulse: Pulse) -> State:
        self.count = getattr(self, "count", 0) + 1
        after = super().finish(state, fold, keys, pulse)
        return replace(after, server={name: weight / self.count for name, weight in after.server.items()})


class Planted(FedAvg):
    def make_server(self, shape: Shape) -> Server:
        return Counting(self, shape)


def test_a_planted_server_that_remembers_is_found() -> None:
    fed = federation(phones(ragged(SHORT, 120)), FedNCF(120, dim=4, head=(6,)), Planted())
    assert digest(run(fed, 3)) != digest(anew(fed, Planted(), 3))


@pytest.mark.parametrize("seated", [1, 6])
def test_the_loss_falls(case: Case, seated: int) -> None:
    clients = phones(checkerboard()) if seated == 1 else silos(checkerboard(), 24 // seated)
    fed = federation(
        clients, FedNCF(24, clients.n_seats, dim=4, head=(6,)), case.build(), rounds=15, lr=1.0, batch=16
    )
    losses = [row["loss"] for _, row in fed.rounds(fed.start())]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_rows_that_nobody_touches_stay_as_they_were(case: Case) -> None:
    fed = federation(phones(ragged((1, 2, 3), 120)), FedNCF(120, dim=4, head=(6,)), case.build(), lr=0.5)
    state, seen = uploads_of(fed)
    touched = torch.zeros(120, dtype=torch.bool)
    for exchange, place in seen.values():
        rows = one(exchange.received.values, place)["item"]
        assert isinstance(rows, Rows)
        touched[rows.row[rows.row >= 0]] = True
    assert 0 < int((~touched).sum()) < 120
    before = fed.start().server["item"]
    assert torch.equal(state.server["item"][~touched], before[~touched])
    assert not torch.equal(state.server["item"][touched], before[touched])
