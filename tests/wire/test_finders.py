"""Watches that find something: what several found of some uploads each is what one finds of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.engine.test_shards import rounds, sharded
from tests.forking import Showing
from tests.worlds import SHORT, checkerboard, federation, phones, ragged
from veilrec.base.params import Params
from veilrec.defences.laplace import Laplace
from veilrec.engine.fleet import Terms
from veilrec.engine.shards import Shards, blank
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.privacy.ledger import Ledger
from veilrec.rounds import Federation
from veilrec.runs.clock import Clock
from veilrec.runs.recorder import Recorder
from veilrec.runs.training import Training
from veilrec.wire.halves import fold_bytes, fold_of
from veilrec.wire.traffic import Traffic
from veilrec.wire.uploads import Exchange, Finder


def traffic(fed: Federation) -> Traffic:
    letter = fed.protocol.letter(fed.model, fed.plan.dtype)
    return Traffic(letter, len(fed.clients), fed.clients.n_seats)


FINDERS: dict[str, Callable[[Federation], Any]] = {"traffic": traffic, "ledger": Ledger.of}
finders = pytest.mark.parametrize("make", FINDERS.values(), ids=FINDERS)


def noisy() -> Federation:
    model = FedNCF(120, dim=4, head=(6,))
    return federation(phones(ragged(SHORT, 120)), model, defence=Laplace(), cohort=0.7, batch=16)


def posting() -> Federation:
    """Who takes part receives what others posted before."""
    clients = phones(checkerboard(), 0.5)
    return federation(clients, FedMF(24, dim=4), defence=Showing(), cohort=0.7)


worlds = pytest.mark.parametrize("world", [noisy, posting])


def same(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_these_are_all() -> None:
    """Of what watches a run; a watch with a tag is one that finds something, and says what it reads."""
    for finder in (Traffic, Ledger):
        made = finder.__new__(finder)
        assert made.tag in FINDERS
        assert all(callable(getattr(finder, name)) for name in ("__call__", "state", "restore", "merge"))
    for other in (Recorder, Clock, Training):
        assert not hasattr(other, "tag")


@finders
def test_it_is_taken_up_from_its_state(make: Callable[[Federation], Any]) -> None:
    fed = noisy()
    whole, first, second = make(fed), make(fed), make(fed)
    assert isinstance(whole, Finder)
    rounds(fed, 3, watch=[whole])
    again = noisy()
    state = again.run(again.start(), rounds=2, watch=[first])
    second.restore({name: value.clone() for name, value in first.state().items()})
    again.run(state, rounds=1, watch=[second])
    assert same(second.state(), whole.state())
    assert second.summary() == whole.summary()


@finders
def test_a_copy_that_is_blank_has_found_nothing(make: Callable[[Federation], Any]) -> None:
    fed = noisy()
    watch, new = make(fed), make(fed)
    rounds(fed, 2, watch=[watch])
    before = {name: value.clone() for name, value in watch.state().items()}
    copy = blank(watch)
    assert same(copy.state(), new.state())
    rounds(noisy(), 1, watch=[copy])
    assert same(watch.state(), before)  # what the copy sees is its own


@finders
@worlds
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_shards_find_what_one_fleet_finds(
    make: Callable[[Federation], Any], world: Callable[[], Federation], order: tuple[int, ...]
) -> None:
    """Each shard has a copy; what that found comes back with its fold, as bytes, and is merged."""
    whole, parted = world(), sharded(world(), order)
    one, other, chunks = make(whole), make(whole), list[Exchange]()
    rounds(whole, 3, watch=[one])
    rounds(parted, 3, watch=[other, chunks.append])
    assert same(one.state(), other.state())
    assert one.summary() == other.summary()
    assert chunks  # other watches see all


@worlds
def test_the_bytes_of_each_round_are_those_of_one_fleet(world: Callable[[], Federation]) -> None:
    whole, parted = world(), sharded(world())
    told = []
    for fed in (whole, parted):
        watch = traffic(whole)
        told.append([watch.finish() for _ in fed.rounds(fed.start(), until=3, watch=[watch])])
    assert told[0] == told[1]


@finders
def test_what_was_found_is_in_the_fold_and_in_its_bytes(make: Callable[[Federation], Any]) -> None:
    fed = noisy()
    watch = make(fed)
    letter = fed.letter(fed.start(), fed.able)
    fold = fed.fleet.round(letter, fed.able, Terms(watch=[watch]))
    schema = fed.protocol.partial_schema(fed.model, letter)
    back = fold_of(fold_bytes(fold, schema), fed.protocol, fed.model, letter, {}, fold.seen)
    assert same(back.seen[watch.tag], watch.state())
    shards = sharded(noisy()).fleet
    assert isinstance(shards, Shards)
    again = make(fed)
    merged = shards.round(letter, fed.able, Terms(watch=[again]))
    assert same(merged.seen[watch.tag], watch.state())
