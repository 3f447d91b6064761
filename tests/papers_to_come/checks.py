"""Checks that every method must pass, whatever its shape: each is a function of a case and a folder."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.ranks.pipes import ranked
from tests.worlds import Both, both, digest, held, largest
from veilrec import node
from veilrec.base.params import Message, Params, Rows
from veilrec.engine import serving
from veilrec.engine.shards import Shards
from veilrec.errors import BadInput, Interrupted
from veilrec.experiment import Experiment
from veilrec.model import overrides
from veilrec.privacy.disclosure import disclosures
from veilrec.privacy.ledger import Ledger
from veilrec.protocol import Protocol
from veilrec.recipe import Recipe
from veilrec.report.page import page
from veilrec.result import Result
from veilrec.rounds import Federation
from veilrec.wire import codec
from veilrec.wire.halves import fold_bytes, fold_of, letter_bytes, letter_of
from veilrec.wire.traffic import Traffic
from veilrec.wire.transcript import Transcript
from veilrec.wire.uploads import Exchange, Letter

WORLD = [
    "data.name='synthetic'",
    "data.users=14",
    "data.items=40",
    "data.events=200",
    "data.least=6",
    "record.last=9",
    "evaluation.candidates=20",
    "plan.lr=0.5",
    "plan.negatives=2",
    "plan.workers=1",
    "plan.chunk=1",  # a device computes by itself: no bit may differ, whoever else is there
]
SAME = ("model.safetensors", "users.safetensors", "metrics.jsonl", "per_user.csv", "transcript.safetensors")
CLIENT = 3


@dataclass(frozen=True)
class Case:
    """A method, and whatever is planted in it.

    Attributes:
        name: Of the case.
        sets: What its recipe says, beside the world.
        uploads: What its devices upload at any time, and ask with.
        planted: Parts of the experiment in the place of the recipe's.
    """

    name: str
    sets: tuple[str, ...]
    uploads: tuple[str, ...]
    planted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        return Recipe.load(None, [*WORLD, *self.sets])

    def experiment(self) -> Experiment:
        return replace(self.recipe.experiment(), **self.planted)

    def federation(self, **plan: Any) -> Federation:
        made = self.experiment()
        return replace(made, plan=replace(made.plan, **plan)).federation()

    def run(self, out: Path, **rest: Any) -> Result:
        return self.experiment().run(out, recipe=self.recipe, world=False, **rest)

    def __str__(self) -> str:
        return self.name


Check = Callable[[Case, Path], None]


def trained(fed: Federation, seen: list[Exchange] | None = None, **rest: Any) -> Both:
    """The state of both halves after the last round."""
    watch = [] if seen is None else [seen.append]
    *_, (state, _) = fed.rounds(fed.start(), watch=watch, **rest)
    return both(fed, state)


def same(one: Letter | Message | Params, other: Letter | Message | Params) -> bool:
    """Whether two messages are equal to the bit."""
    if isinstance(one, Letter) and isinstance(other, Letter):
        parts = zip(one[:3], other[:3], strict=True)
        return one.round == other.round and all(same(a, b) for a, b in parts)
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())


def alike(one: Tensor | Rows, other: Tensor | Rows) -> bool:
    if isinstance(one, Rows) or isinstance(other, Rows):
        return isinstance(one, Rows) and isinstance(other, Rows) and all(map(torch.equal, one, other))
    return one.dtype is other.dtype and torch.equal(one, other)


def by_engine(case: Case, folder: Path) -> None:
    """Any number of threads gives the same bits; uploads are what their letter's schema says, to the byte."""
    fed, seen = case.federation(), list[Exchange]()
    state = trained(fed, seen)
    assert digest(state) == digest(trained(case.federation(workers=3)))
    near(state, trained(case.federation(chunk=4)))
    before = fed.server.start(fed.keys.fold("server"))
    assert not same(before.server, state.server)
    assert {name for exchange in seen for name in exchange.received.values} <= set(case.uploads)
    for exchange in seen:
        sent = codec.one(exchange.received.values, 0)
        rows = {n: int((v.row >= 0).sum()) for n, v in sent.items() if isinstance(v, Rows)}
        assert len(codec.encode(sent)) == codec.size(exchange.schema, rows)
        assert codec.decode(codec.encode(sent), exchange.schema).keys() == sent.keys()
    scored = fed.evaluate(state)
    assert len(scored.user) == 14
    assert fed.last == state.round > 1


def near(one: Both, other: Both) -> None:
    """Whether two states are the same up to rounding; numbers of items are never rounded."""
    pairs = [(one.server, other.server), (one.memory, other.memory)]
    every = torch.arange(len(one.devices.slot))
    pairs.append((one.devices.get(every), other.devices.get(every)))
    for mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert largest(value, theirs[name]) < (1e-4 if value.is_floating_point() else 1e-9)


def by_a_device(case: Case, folder: Path) -> None:
    """A device alone sends the bytes that the engine has for it in every round, and asks as it does there."""
    fed, recipe = case.federation(), case.recipe.toml()
    state, traffic, asks = fed.start(), counter(fed), overrides(fed.protocol, Protocol, "query")
    node.provision(fed, CLIENT, recipe, folder)
    for _ in range(fed.last):
        message, seen, before = node.letter(fed, state, CLIENT), list[Exchange](), int(traffic.down[CLIENT])
        until = state.round + 1
        ((state, _),) = fed.rounds(state, until=until, watch=[seen.append, traffic])
        mine = [e for e in seen if CLIENT in e.received.cohort]
        if not mine:
            continue
        assert len(message) == int(traffic.down[CLIENT]) - before
        place = int((mine[0].received.cohort == CLIENT).nonzero())
        reply = node.answer(folder, message, seeded=True)
        assert reply == codec.encode(codec.one(mine[0].received.values, place))
    message = node.letter(fed, state, CLIENT)
    if not asks:
        with pytest.raises(BadInput, match="devices score for themselves"):
            node.ask(folder, message, seeded=True)
        return
    with fed.fleet.working() as pool:
        query = serving.asker(fed.fleet, fed.at(state), pool)(torch.tensor([CLIENT]))
    asked = node.ask(folder, message, seeded=True)
    assert asked == codec.encode(codec.one(query, 0))
    assert len(asked) == traffic.query


def counter(fed: Federation) -> Traffic:
    fleet = fed.fleet
    letter = fleet.protocol.letter(fleet.model, fleet.plan.dtype)
    return Traffic(letter, len(fed.clients), query=fed.protocol.query_schema(fed.model))


def by_a_checkpoint(case: Case, folder: Path, leaves: str = "clients") -> None:
    """A run that is left in its second round and taken up again ends as one that was not, to the byte."""
    done = 0

    def leave(phase: str, now: int, total: int, row: Any) -> None:
        nonlocal done
        done = now if phase == "rounds" else done
        if phase == leaves and done == 1:
            raise KeyboardInterrupt

    whole = case.run(folder / "whole")
    with pytest.raises(Interrupted):
        case.run(folder / "parted", progress=leave, checkpoint_seconds=0)
    parted = case.run(folder / "parted", resume=True)
    for name in ("utility", "selected", "rounds", "traffic", "ledger", "discloses"):
        assert getattr(whole, name) == getattr(parted, name)
    for name in SAME:
        one, other = (folder / run / name for run in ("whole", "parted"))
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()


def by_transcript(case: Case, folder: Path) -> None:
    """What was written down is what the server saw: letters for all and for each, and uploads."""
    seen = list[Exchange]()
    fed = case.federation()
    trained(fed, seen)
    case.run(folder / "run")
    transcript = Transcript.open(folder / "run" / "transcript.safetensors")
    assert transcript.rounds == list(range(1, fed.last + 1))
    assert transcript.probed
    assert transcript.schema.keys() == fed.fleet.schema().keys()
    for exchange in seen:
        kept, cohort = transcript.exchange(exchange.round), exchange.received.cohort
        (place,) = (kept.received.cohort == cohort).nonzero().squeeze(1).tolist()
        chosen = fed.fleet.schema().keys() & kept.received.values.keys()
        tables = {name for name, spec in exchange.schema.items() if spec.table is not None}
        assert chosen == exchange.schema.keys() - tables
        one = codec.one(kept.received.values, place)
        assert same(one, codec.one({n: exchange.received.values[n] for n in chosen}, 0))
        each = {name: value[place][None] for name, value in kept.sent.each.items()}
        assert same(each, exchange.sent.each)


def by_ledger(case: Case, folder: Path) -> None:
    """Nothing that leaves, or is asked with, counts as private that nobody declares noise for."""
    fed, seen = case.federation(), list[Exchange]()
    ledger = Ledger.of(fed)
    *_, _ = fed.rounds(fed.start(), watch=[ledger, seen.append])
    took = torch.bincount(torch.cat([e.received.cohort for e in seen]), minlength=len(fed.clients))
    assert torch.equal(ledger.uploads, took)
    assert set(ledger.bare) == set(case.uploads)
    assert not ledger.guarantee
    assert not ledger.summary()["guarantee"]
    told = {one.name: one for one in disclosures(fed.model, fed.protocol, fed.defence)}
    assert told.keys() == {"", *case.uploads}
    queries = {name for name, one in told.items() if one.kind == "query"}
    assert queries == fed.protocol.query_schema(fed.model).keys()


def by_report(case: Case, folder: Path) -> None:
    """A run's file says what its devices tell, and makes a page that promises nothing."""
    case.run(folder / "run")
    result = Result.load(folder / "run")
    text = html.unescape(page([("run", result)], ""))
    assert "no formal guarantee" in text
    assert {one["name"] for one in result.discloses} == {"", *case.uploads}
    assert all(one["says"] for one in result.discloses)
    assert "synthetic" in text


def by_two_shards(case: Case, folder: Path) -> None:
    """Two shards that answer in bytes, merged in either order, do what one fleet does, to the bit."""
    whole = case.federation()
    one, every = trained(whole), torch.arange(len(whole.clients))
    for order in ((0, 1), (1, 0)):
        fed = case.federation()
        shards = Shards.of(fed.fleet, [every[k::2] for k in (0, 1)], order)
        parted = Federation(shards, fed.server)
        *_, (other, _) = parted.rounds(parted.start())
        assert same(one.server, other.server)
        assert same(one.memory, other.memory)
        assert same(held(whole, one), shards.devices.get(every))
        judged, also = whole.evaluate(one), parted.evaluate(other)
        assert torch.equal(judged.user, also.user)
        assert same(judged.values, also.values)


def by_ranks(case: Case, folder: Path) -> None:
    """Two processes do what one does, to the bit; the server scores what devices of either ask."""
    whole = case.federation()
    one, every = trained(whole), torch.arange(len(whole.clients))
    with ranked(case.federation, 2) as parted:
        *_, (other, _) = parted.rounds(parted.start())
        assert same(one.server, other.server)
        assert same(one.memory, other.memory)
        assert same(held(whole, one), parted.fleet.devices.get(every))
        judged, also = whole.evaluate(one), parted.evaluate(other)
        assert torch.equal(judged.user, also.user)
        assert same(judged.values, also.values)


def by_bytes(case: Case, folder: Path) -> None:
    """Letters and folds come back from their bytes; what is cut, or not declared, is refused."""
    fed = case.federation()
    state = fed.start()
    for _ in range(fed.last):
        letter = fed.letter(state, fed.sample(state.round))
        again = letter_of(letter_bytes(letter), fed.fleet.form)
        assert same(letter, again)
        fold = fed.fleet.round(again, fed.sample(state.round))
        schema = fed.protocol.partial_schema(fed.model, again)
        data = fold_bytes(fold, schema)
        back = fold_of(data, fed.protocol, fed.model, again, {})
        assert same(fold.partial, back.partial)
        assert (fold.row, fold.groups) == (back.row, back.groups)
        for broken in (data[:-9], fold_bytes(replace(fold, partial={"odd": torch.ones(1)}), {"odd": ODD})):
            with pytest.raises(BadInput):
                fold_of(broken, fed.protocol, fed.model, again, {})
        state = fed.server.finish(state, back, fed.keys.fold("finish").fold(state.round), beat)


ODD = codec.Spec((1,))


def beat(done: int, total: int) -> None:
    assert 0 <= done < total


def by_new_servers(case: Case, folder: Path) -> None:
    """What a server knows lies in its state: another one before each round goes on to the same bits."""
    one, fed = trained(case.federation()), case.federation()
    assert digest(one) == digest(anew(fed))


def anew(fed: Federation) -> Both:
    """The state of both halves after the last round, each of a server of its own."""
    state = fed.start()
    for _ in range(fed.last):
        other = Federation(fed.fleet, fed.protocol.make_server(fed.fleet.shape))
        ((state, _),) = other.rounds(state, until=state.round + 1)
    return both(fed, state)


CHECKS: list[Check] = [
    by_engine,
    by_a_device,
    by_a_checkpoint,
    by_transcript,
    by_ledger,
    by_report,
    by_two_shards,
    by_ranks,
    by_bytes,
    by_new_servers,
]
