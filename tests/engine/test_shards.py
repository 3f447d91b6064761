"""Shards: several fleets as one, through bytes, do what one fleet of all clients does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from tests.worlds import SHORT, checkerboard, contents, federation, largest, phones, ragged, silos
from veilrec.base.params import Message
from veilrec.defences.pard import PARD
from veilrec.engine.fleet import Terms
from veilrec.engine.probe import probe
from veilrec.engine.shards import Shards
from veilrec.errors import BadInput
from veilrec.models.fedncf import FedNCF
from veilrec.protocol import Shape
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire import codec
from veilrec.wire.frame import framed
from veilrec.wire.halves import (
    Form,
    exchange_bytes,
    exchange_of,
    fold_bytes,
    fold_of,
    letter_bytes,
    letter_of,
)
from veilrec.wire.notes import Notes, notes
from veilrec.wire.uploads import Exchange, Fold, Posts

ADAM = FedAvg(sends="gradients", server="adam", server_lr=0.05)


def fed_of(protocol: FedAvg | None = None, **plan: Any) -> Federation:
    model = FedNCF(120, dim=4, head=(6,))
    return federation(phones(ragged(SHORT, 120)), model, protocol, lr=0.5, batch=16, **plan)


def sharded(fed: Federation, order: tuple[int, ...] = (0, 1)) -> Federation:
    """The same federation in two shards, every other client in each."""
    every = torch.arange(len(fed.clients))
    return Federation(Shards.of(fed.fleet, [every[k::2] for k in (0, 1)], order), fed.server)


def rounds(fed: Federation, n: int, **rest: Any) -> Any:
    *_, (state, _) = fed.rounds(fed.start(), until=n, **rest)
    return state


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    "protocol",
    [FedAvg(), FedAvg(weigh="touched"), FedAvg(weigh="examples", server="sgd"), ADAM],
    ids=["mean", "touched", "examples", "adam"],
)
def test_two_shards_do_what_one_fleet_does(protocol: FedAvg, order: tuple[int, int]) -> None:
    """Merged in any order; every device draws what it draws in the whole."""
    whole, parted = fed_of(protocol, cohort=0.7), sharded(fed_of(protocol, cohort=0.7), order)
    one, other = rounds(whole, 3), rounds(parted, 3)
    assert one.server.keys() == other.server.keys()
    assert all(largest(one.server[name], other.server[name]) < 1e-6 for name in one.server)
    shards = parted.fleet
    assert isinstance(shards, Shards)
    for k, fleet in enumerate(shards.fleets):
        mine = fleet.devices.get(torch.arange(len(fleet.clients)))
        theirs = whole.fleet.devices.get(torch.arange(len(whole.clients))[k::2])
        assert all(largest(mine[name], theirs[name]) < 1e-6 for name in mine)


@pytest.mark.parametrize(
    "protocol", [FedAvg(), FedAvg(weigh="examples"), ADAM], ids=["mean", "examples", "adam"]
)
def test_where_whole_chunks_are_dealt_the_bits_are_the_same(protocol: FedAvg) -> None:
    """Partials are sums in float64, and of float32 weights exact: a chunk may be folded here or there."""
    fed = fed_of(protocol, chunk=2, workers=1)
    chunks = fed.fleet.chunks(fed.able)
    dealt = [torch.cat(list(chunks[k::2])).sort().values for k in (0, 1)]
    parted = Federation(Shards.of(fed.fleet, dealt), fed.server)
    one, other = rounds(fed, 3), rounds(parted, 3)
    assert all(torch.equal(value, other.server[name]) for name, value in one.server.items())
    assert all(torch.equal(value, other.memory[name]) for name, value in one.memory.items())


def test_users_are_judged_in_the_order_of_the_whole_log() -> None:
    whole, parted = fed_of(), sharded(fed_of())
    one, other = whole.evaluate(rounds(whole, 2)), parted.evaluate(rounds(parted, 2))
    assert torch.equal(one.user, other.user)
    assert all(largest(one.values[name], other.values[name]) < 1e-6 for name in one.values)


def test_what_is_posted_in_shards_has_the_owners_of_the_whole() -> None:
    def made() -> Federation:
        clients = phones(checkerboard(), 0.5)
        return federation(clients, FedNCF(24, dim=4, head=(6,)), defence=PARD(), lr=0.1, batch=8)

    whole, parted = made(), sharded(made(), (1, 0))
    one, other = rounds(whole, 2), rounds(parted, 2)
    assert len(one.posts.owner) > 3
    assert torch.equal(one.posts.owner, other.posts.owner)
    assert all(largest(v, other.posts.values[n]) < 1e-6 for n, v in one.posts.values.items())


def test_a_checkpoint_of_shards_is_one_of_all_devices() -> None:
    """What shards hold is gathered in one store; a run goes on from it in shards or in one process."""
    whole, parted, again = (fed_of(cohort=0.7) for _ in range(3))
    parted, again = sharded(parted), sharded(again, (1, 0))
    state = rounds(parted, 2)
    held = parted.fleet.devices
    everyone = torch.arange(len(whole.clients))
    for k, fleet in enumerate(parted.fleet.fleets):
        mine = fleet.devices.get(torch.arange(len(fleet.clients)))
        assert all(torch.equal(value, held.get(everyone[k::2])[name]) for name, value in mine.items())
    for fed in (whole, again):
        fed.start()
        fed.fleet.devices.restore(contents(held))
    ends = []
    for fed in (parted, whole, again):
        *_, (end, _) = fed.rounds(state, until=4)
        ends.append(end)
    assert all(largest(ends[0].server[n], end.server[n]) < 1e-6 for end in ends[1:] for n in end.server)


def test_every_client_of_every_shard_is_probed() -> None:
    whole, parted = fed_of(), sharded(fed_of())
    state = rounds(whole, 1)
    one, other = (
        torch.cat([seen.received.cohort for seen in probe(fed, state)]).sort().values
        for fed in (whole, parted)
    )
    assert torch.equal(one, other)


def test_silos_can_be_parted_too() -> None:
    def made() -> Federation:
        clients = silos(checkerboard(), 4)
        return federation(clients, FedNCF(24, clients.n_seats, dim=4, head=(6,)), ADAM, batch=8)

    whole, parted = made(), sharded(made())
    one, other = rounds(whole, 2), rounds(parted, 2)
    assert all(largest(one.server[name], other.server[name]) < 1e-6 for name in one.server)
    assert torch.equal(whole.evaluate(one).user, parted.evaluate(other).user)


@pytest.mark.parametrize(("forwards", "groups"), [("all", (8,)), (3, (4, 4)), (4, (4, 4))])
def test_what_leaves_shards_is_a_sum_over_enough_devices(forwards: Any, groups: tuple[int, ...]) -> None:
    """One sum is that of all shards; sums over so many leave from each."""
    parted = sharded(fed_of(forwards=forwards))
    able, terms = parted.fleet.able, Terms(forwards)
    fold = parted.fleet.round(parted.letter(parted.start(), able), able, terms)
    assert fold.groups == groups


@pytest.mark.parametrize("forwards", [5, "all"])
def test_a_shard_with_too_few_devices_is_refused_before_any_works(forwards: Any) -> None:
    """Under one sum a shard may have a single device, and the round may not."""
    parted = sharded(fed_of())
    able = parted.fleet.able
    state, cohort = parted.start(), able[:1] if forwards == "all" else able
    letter = parted.letter(state, cohort)
    with pytest.raises(BadInput, match=r"^plan\.forwards: a shard's round has .* too few for a sum over .;"):
        parted.fleet.round(letter, cohort, Terms(forwards))
    assert not parted.fleet.bytes_up  # type: ignore[attr-defined]
    some = torch.tensor([0, 1, 3])  # one in the first shard, two in the other
    assert parted.fleet.round(letter, some, Terms("all")).groups == (3,)


def test_letters_and_folds_come_back_from_their_bytes() -> None:
    fed = fed_of(FedAvg(weigh="touched"))
    letter = fed.letter(fed.start(), fed.able)._replace(
        each={"pace": torch.arange(3.0)}, posts={"v": torch.ones(2, 4)}, round=7
    )
    sheet = {**fed.fleet.form.sheet, "each/pace": codec.Spec(())}
    again = letter_of(letter_bytes(letter), Form(sheet, {"v": codec.Spec((4,))}))
    assert again.round == 7
    for ours, theirs in zip(letter[:3], again[:3], strict=True):
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    fold = fed.fleet.round(fed.letter(fed.start(), fed.able), fed.able)
    schema = fed.protocol.partial_schema(fed.model, letter)
    back = fold_of(fold_bytes(fold, schema), fed.protocol, fed.model, letter, {})
    assert back.partial.keys() == fold.partial.keys()
    assert all(torch.equal(v, back.partial[n]) for n, v in fold.partial.items())  # type: ignore[arg-type]


def test_a_letter_says_of_which_run_it_is() -> None:
    fed = fed_of()
    letter, mine = fed.letter(fed.start(), fed.fleet.able), notes("one", "seed = 1")
    data = letter_bytes(letter, notes("one", "seed = 1", missed=[2, 5]))
    form = fed.fleet.form
    assert letter_of(data, form, mine).round == letter_of(data, form).round == 0
    assert Notes.of(framed(data).notes) == Notes("one", mine["recipe"], (2, 5), 1)
    for other, what in ((notes("two", "seed = 1"), "run"), (notes("one", "seed = 2"), "recipe")):
        with pytest.raises(BadInput, match=f"^letter: of another {what}; send"):
            letter_of(data, form, other)
    assert letter_of(letter_bytes(letter), form, mine).round == 0  # one that does not say


@pytest.mark.parametrize(
    ("partial", "match"),
    [
        ({"user": torch.zeros(3, dtype=torch.float64)}, "undeclared 'partial/user'"),
        ({"mlp1.bias": torch.full((6,), torch.nan, dtype=torch.float64)}, "not finite"),
        ({"mlp1.bias": torch.zeros(7, dtype=torch.float64)}, "has shape"),
        ({"mlp1.bias": torch.zeros(6)}, "is torch.float32"),
    ],
)
def test_a_fold_that_is_not_what_the_protocol_declares_is_refused(partial: Message, match: str) -> None:
    fed = fed_of()
    letter = fed.letter(fed.start(), fed.able)
    schema = {**fed.protocol.partial_schema(fed.model, letter), **fed.protocol.schema(fed.model)}
    data = fold_bytes(
        Fold(partial, Posts.none(), {"clients": 1, "loss": 0.0}),
        {n: schema.get(n, schema["mlp1.bias"]) for n in partial},
    )
    with pytest.raises(BadInput, match=match):
        fold_of(data, fed.protocol, fed.model, letter, {})


def test_a_server_is_made_without_any_data() -> None:
    """Model, protocol, keys and numbers are enough to go on from a fleet's folds."""
    fed = fed_of(ADAM)
    server = ADAM.make_server(Shape(FedNCF(120, dim=4, head=(6,)), len(fed.clients)))
    apart = Federation(fed.fleet, server)
    one, other = rounds(fed, 2), rounds(apart, 2)
    assert all(torch.equal(value, other.server[name]) for name, value in one.server.items())


def test_what_shards_tell_each_other_is_held_against_its_form() -> None:
    """Letters, folds and exchanges with other names, types, shapes and ranges are errors of veilrec."""
    fed = fed_of(FedAvg(weigh="examples"))
    letter, form = fed.letter(fed.start(), fed.able), fed.fleet.form
    seen: list[Exchange] = []
    fold = fed.fleet.round(letter, fed.able, Terms(watch=[seen.append]))
    schema = fed.protocol.partial_schema(fed.model, letter)

    def letter_back(data: bytes) -> object:
        return letter_of(data, form)

    def fold_back(data: bytes) -> object:
        return fold_of(data, fed.protocol, fed.model, letter, {})

    def exchange_back(data: bytes) -> object:
        return exchange_of(data, fed.able, letter, seen[0].schema, {})

    nan = torch.tensor(float("nan"), dtype=torch.float64)
    for back, data, odd in (
        (letter_back, letter_bytes(letter), {"round": torch.tensor(-1), "each/x": nan, "all/mlp1.bias": nan}),
        (fold_back, fold_bytes(fold, schema), {"row/clients": nan, "groups": nan, "posts/owner": nan}),
        (fold_back, fold_bytes(fold, schema), {"groups": torch.tensor([-3]), "seen/ledger/units": nan}),
        (exchange_back, exchange_bytes(seen[0], None), {"cohort": torch.tensor([99]), "count/item": nan}),
        (exchange_back, exchange_bytes(seen[0], None), {"value/item": nan, "row/item": nan, "odd": nan}),
    ):
        assert back(data)
        for name, value in odd.items():
            with pytest.raises(BadInput):
                back(bytes(save({**load(data), name: value})))
        for name in load(data):
            if not name.startswith("partial/") and (not name.startswith("value/") or name == "value/item"):
                with pytest.raises(BadInput):
                    back(bytes(save({n: v for n, v in load(data).items() if n != name})))


def test_posts_travel_with_their_owners() -> None:
    fed = federation(phones(checkerboard(), 0.5), FedNCF(24, dim=4, head=(6,)), defence=PARD(), batch=8)
    letter = fed.letter(fed.start(), fed.able)
    fold = fed.fleet.round(letter, fed.able)
    assert len(fold.posts.owner) > 3
    schema = fed.protocol.partial_schema(fed.model, letter)
    posts = fed.fleet.announced

    def back(fold: Fold) -> Fold:
        return fold_of(fold_bytes(fold, schema), fed.protocol, fed.model, letter, posts)

    assert torch.equal(back(fold).posts.owner, fold.posts.owner)
    label = next(name for name in posts if "label" in name)
    for odd in (
        fold.posts._replace(owner=fold.posts.owner[1:]),
        fold.posts._replace(values={**fold.posts.values, label: fold.posts.values[label] + 2}),
        fold.posts._replace(values={n: v for n, v in fold.posts.values.items() if n != label}),
    ):
        with pytest.raises(BadInput):
            back(replace(fold, posts=odd))
