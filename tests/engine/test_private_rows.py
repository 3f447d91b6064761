"""What a device keeps of its own tables becomes the tables of a round, and is put back with the rest."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.worlds import SHORT, changed, federation, phones, ragged
from veilrec.base.keys import Keys
from veilrec.base.params import ROW, Params, Part, Scope
from veilrec.defences.none import Undefended
from veilrec.engine.devices import private_rows
from veilrec.engine.devices.private_rows import find, load, save, union
from veilrec.errors import BadInput
from veilrec.examples import Portion
from veilrec.model import Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedrap import FedRAP
from veilrec.privacy.mechanism import Mechanism
from veilrec.protocol import Protocol

ITEMS = 12
FIRST = Keys.seed(0)  # of devices whose tables begin with zeros
rows = st.lists(st.integers(0, ITEMS - 1), unique=True, max_size=ITEMS).map(sorted)
pairs = st.lists(st.tuples(rows, rows), min_size=1, max_size=5)


def padded(lists: list[list[int]], spare: int = 0) -> Tensor:
    longest = max(len(some) for some in lists) + spare
    wide = [some + [-1] * (longest - len(some)) for some in lists]
    return torch.tensor(wide, dtype=torch.int64).reshape(len(lists), longest)


@given(pairs, st.integers(0, 2), st.integers(0, 2))
def test_sets_of_rows(both: list[tuple[list[int], list[int]]], spare: int, more: int) -> None:
    left, right = padded([a for a, _ in both], spare), padded([b for _, b in both], more)
    found = union(left, right)
    place = find(left, right)
    for k, (a, b) in enumerate(both):
        assert found[k][found[k] >= 0].tolist() == sorted({*a, *b})
        assert place[k].tolist()[: len(b)] == [a.index(row) if row in a else -1 for row in b]
        assert set(place[k].tolist()[len(b) :]) <= {-1}
    assert found.shape[1] == max(len({*a, *b}) for a, b in both)


def kept_of(lists: list[list[int]]) -> Params:
    """By hand: a table whose rows are three times and four times the row's number, and one count of steps."""
    row = padded(lists)
    value = torch.stack([3.0 * row, 4.0 * row], 2) * (row >= 0)[..., None]
    return {"kept/residual": value, "kept/m/residual": -value, "t/residual": torch.ones(len(row)), ROW: row}


def portion_of(local: Tensor) -> Portion:
    """A portion of which nothing is asked but its rows."""
    clients = phones(ragged(SHORT, 120))
    cohort = torch.arange(len(local))
    known = clients.batch(cohort, history=0, rows=local, dtype=torch.float32)
    return Portion(cohort, [1] * len(local), known, [])


@given(pairs)
def test_a_round_of_local_tables(both: list[tuple[list[int], list[int]]]) -> None:
    """Rows not kept are zero in the round; those of the round replace what was kept, the rest stays."""
    kept, local = kept_of([a for a, _ in both]), padded([b for _, b in both])
    before = {name: value.clone() for name, value in kept.items()}
    _, own = load(FedMF(ITEMS), portion_of(local), kept, FIRST)
    assert own.keys() == {"residual", "m/residual", "t/residual"}
    for k, (a, b) in enumerate(both):
        for place, row in enumerate(b):
            assert own["residual"][k, place].tolist() == ([3.0 * row, 4.0 * row] if row in a else [0.0, 0.0])
        assert not own["residual"][k, len(b) :].any()
    trained = {name: value + 1000 for name, value in own.items()}
    after = save(kept, local, trained)
    assert list(after) == list(kept)
    assert after["t/residual"].tolist() == [1001.0] * len(both)
    for k, (a, b) in enumerate(both):
        there = after[ROW][k] >= 0
        assert after[ROW][k][there].tolist() == sorted({*a, *b})
        for row, value, moment in zip(
            after[ROW][k][there].tolist(),
            after["kept/residual"][k][there].tolist(),
            after["kept/m/residual"][k][there].tolist(),
            strict=True,
        ):
            was = 3.0 * row if row in a else 0.0
            assert value[0] == (was + 1000 if row in b else was)
            assert moment[0] == (1000 - was if row in b else -was)
    assert all(
        torch.equal(kept[name], value) for name, value in before.items()
    )  # nothing is changed in place


def test_without_tables_nothing_happens() -> None:
    portion, kept = portion_of(torch.tensor([[1, 2]])), {"user": torch.ones(1, 3)}
    assert load(FedMF(ITEMS), portion, kept, FIRST) == (portion, kept)
    assert save(kept, portion.known.rows, {"user": torch.zeros(1, 3), "item": torch.ones(1)}).keys() == {
        "user"
    }
    assert private_rows.names_of(FedMF(ITEMS)) == []
    assert private_rows.size(FedMF(ITEMS)) == 0


@pytest.mark.parametrize("project", [0, 5])
def test_what_is_recalled_and_what_is_here_make_the_whole(project: int) -> None:
    """Whichever rows a round has: the vector is that of the whole table."""
    model = FedRAP(ITEMS, 1, dim=2, project=project)
    lists = [[0, 3, 4, 11], [], [2, 5]]
    kept = {n: v[:, :, None] if n == "kept/residual" else v for n, v in kept_of(lists).items()}
    del kept["kept/m/residual"]
    whole = private_rows.widened(model, kept, "residual", FIRST)
    everything = torch.stack([model._summed(torch.arange(ITEMS), table) for table in whole])
    assert everything[0].any()
    for local in ([[3, 4, 7], [1], [9]], [[0, 3, 4, 11], [], []], [[], [], [2, 5]]):
        portion, own = load(model, portion_of(padded(local)), kept, FIRST)
        found = []
        for k in range(3):
            rest = portion.known.rest[k]
            here = model._summed(portion.known.rows[k], own["residual"][k])
            found.append(here + rest)
        assert torch.allclose(torch.stack(found), everything, atol=1e-5)


def test_whole_tables_of_devices_old_and_new() -> None:
    fed = federation(
        phones(ragged(SHORT, 120)), FedRAP(120, 1, dim=3), cohort=0.5, optimiser="adam", rounds=2
    )
    fed.run(fed.start())
    everyone = torch.arange(len(fed.clients))
    found = fed.fleet.whole(everyone, ["residual"])["residual"]
    assert found.shape == (len(fed.clients), 120, 1, 3)
    kept = fed.fleet.devices.get(everyone)
    for k in everyone.tolist():
        row = kept[ROW][k]
        assert torch.equal(found[k, row[row >= 0]], kept["kept/residual"][k, row >= 0])
        assert found[k].flatten(1).any(1).nonzero().squeeze(1).tolist() == row[row >= 0].tolist()
        assert (int(fed.fleet.devices.slot[k]) < 0) == (not found[k].any())
    assert 0 < fed.fleet.devices.used < len(fed.clients)


def test_fresh_devices_hold_no_row() -> None:
    fed = federation(phones(ragged(SHORT, 120)), FedRAP(120, 1, dim=3, variant="original"), optimiser="adam")
    own = fed.fleet.fresh(torch.arange(4))
    assert {name: tuple(value.shape) for name, value in own.items() if "residual" in name or name == ROW} == {
        "kept/residual": (4, 0, 1, 3),
        "kept/m/residual": (4, 0, 1, 3),
        "kept/v/residual": (4, 0, 1, 3),
        "t/residual": (4,),
        ROW: (4, 0),
    }
    assert own["score.weight"].shape == (4, 1, 3)
    assert private_rows.size(fed.model) == 3 * 120 * 3
    assert len(fed.fleet.chunks(torch.arange(8))) == 1
    few = changed(fed, defence=Large())
    assert len(few.fleet.chunks(torch.arange(8))) == 8


class Large(Undefended):
    """So much that one device fills a chunk."""

    def declares(self, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        one = Fraction(1)
        return (Mechanism("large", "item", "laplace", one, one, width=1 << 14, table=1 << 10, rows="all"),)


def test_a_table_that_is_uploaded_from_each_device_is_refused() -> None:
    model = FedRAP(9)
    model.parts = {**model.parts, "residual": Part(Scope.EXPOSED, rows="item")}
    with pytest.raises(BadInput, match="item table 'residual' is exposed; item tables are shared or private"):
        private_rows.check(model)


def test_planted_momentum_that_goes_on_without_its_row_would_be_seen() -> None:
    """What is kept and not in the round is the same bits afterwards, whatever the optimiser."""
    fed = federation(
        phones(ragged(SHORT, 120)), FedRAP(120, 1, dim=3), optimiser="adam", rounds=1, negatives=2
    )
    state = fed.run(fed.start())
    everyone = torch.arange(len(fed.clients))
    before = fed.fleet.whole(everyone, ["residual"])["residual"]
    keys = fed.fleet.client_keys(everyone, state.round)
    order = torch.tensor(sorted(everyone.tolist(), key=lambda k: -fed.clients.sizes[k]))
    drawn = Portion.draw(fed.clients, order, Keys(keys.value[order]), epochs=1, negatives=2)
    state = fed.run(state, rounds=1)
    after = fed.fleet.whole(everyone, ["residual"])["residual"]
    stayed = 0
    for place, k in enumerate(order.tolist()):
        here = set(drawn.known.rows[place].tolist())
        moved = (after[k] != before[k]).flatten(1).any(1).nonzero().squeeze(1).tolist()
        assert set(moved) <= here
        stayed += len(set(before[k].flatten(1).any(1).nonzero().squeeze(1).tolist()) - here)
        assert moved
    assert stayed > 20


class Keyed(FedMF):
    """Each device's own item table begins with draws from its keys."""

    def __init__(self, n_items: int, n_seats: int = 1, *, dim: int = 3) -> None:
        super().__init__(n_items, n_seats, dim=dim)
        self.parts = {**self.parts, "item": Part(Scope.PRIVATE, rows="item", keyed_rows=True)}


def test_keyed_rows_are_the_same_wherever_they_are_drawn() -> None:
    """Whole before anything is kept, in a local table, beside other devices or alone: by device and row."""
    fed = federation(phones(ragged(SHORT, 120)), Keyed(120), lr=0.0)
    everyone = torch.arange(len(fed.clients))
    whole = fed.fleet.whole(everyone, ["item"])["item"]
    assert whole.shape == (8, 120, 3)
    assert len(whole.flatten(0, 1).unique(dim=0)) == 8 * 120
    assert 0.005 < float(whole.std()) < 0.02
    alone = torch.cat([fed.fleet.whole(k, ["item"])["item"] for k in everyone.split(1)])
    assert torch.equal(alone, whole)
    fed.run(fed.start())  # at no rate: rows are kept as they began
    assert torch.equal(fed.fleet.whole(everyone, ["item"])["item"], whole)
    kept = fed.fleet.devices.get(everyone)
    for k in everyone.tolist():
        row = kept[ROW][k][kept[ROW][k] >= 0]
        assert torch.equal(kept["kept/item"][k, : len(row)], whole[k, row])


def test_keyed_rows_are_trained_from_where_they_began() -> None:
    fed = federation(phones(ragged(SHORT, 120)), Keyed(120), lr=1.0)
    everyone = torch.arange(len(fed.clients))
    before = fed.fleet.whole(everyone, ["item"])["item"]
    fed.run(fed.start())
    after, kept = fed.fleet.whole(everyone, ["item"])["item"], fed.fleet.devices.get(everyone, [ROW])[ROW]
    for k in everyone.tolist():
        moved = (after[k] != before[k]).any(1).nonzero().squeeze(1).tolist()
        assert moved == kept[k][kept[k] >= 0].tolist()
        assert moved
    assert not bool((kept >= 0).all())
