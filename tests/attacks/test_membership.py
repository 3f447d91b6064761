"""Which items did a user touch: hand-made uploads with known answers, and a federation that tells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch

from tests.worlds import federation, phones, silos
from veilrec.attack import Public, Seen
from veilrec.attacks.common.membership import Membership
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows
from veilrec.datasets.synthetic import synthetic
from veilrec.defence import Defence
from veilrec.defences.laplace import Laplace
from veilrec.engine.probe import probe, see
from veilrec.lab.membership import membership, per_user
from veilrec.lab.trials import People
from veilrec.model import Device
from veilrec.models.fedmf import FedMF
from veilrec.protocols.fedavg import FedAvg
from veilrec.wire.codec import Spec
from veilrec.wire.uploads import Exchange, Letter, Uploads

GRADIENTS = FedAvg(sends="gradients", server="adam", server_lr=0.05)


def upload(
    rows: Rows, items: int, *, gradients: bool = True, draws: int = 2, told: int | None = None
) -> tuple[Public, Exchange]:
    model = FedMF(items, 1, dim=rows.value.shape[-1])
    schema = {"item": Spec((rows.value.shape[-1],), torch.float32, items)}
    seats = torch.arange(len(rows.row))[:, None]
    public = Public(model, schema, gradients, None, seats, len(rows.row), draws=draws)
    cohort = torch.arange(len(rows.row))
    sent = Letter({"item": torch.zeros(items, rows.value.shape[-1])}, {})
    examples = {} if told is None else {"examples": torch.full((len(cohort),), told, dtype=torch.int32)}
    return public, Exchange(1, sent, Uploads(cohort, {"item": rows} | examples))


@pytest.mark.parametrize("gradients", [True, False])
def test_the_smaller_side_of_the_line_is_the_touched_one(gradients: bool) -> None:
    toward = torch.tensor([1.0, 2.0, -1.0])
    step = torch.tensor([0.5, -0.1, -0.2, 0.4, -0.3, 0.0])[:, None] * toward  # towards the user or away
    rows = Rows(torch.tensor([[0, 2, 3, 5, 6, -1]]), (-step if gradients else step)[None])
    public, exchange = upload(rows, 8, gradients=gradients)
    scores = Membership("direction").pairs(public, exchange)[0]
    assert (scores > 0).nonzero().squeeze(1).tolist() == [0, 5]
    assert (scores < 0).nonzero().squeeze(1).tolist() == [2, 3, 6]
    assert Membership("rows").pairs(public, exchange)[0].tolist() == [1, 0, 1, 1, 0, 1, 1, 0]
    norms = Membership("norms").pairs(public, exchange)[0]
    assert norms.argsort(descending=True)[:2].tolist() == [0, 5]


@pytest.mark.parametrize(
    ("draws", "told", "items", "touched"),
    [
        (2, None, 8, [0, 5]),  # 2 events, 4 draws among 6 others: 3 rows are no wonder
        (1, None, 8, [2, 3, 6]),  # 2 draws cannot hit 3
        (2, 3, 8, [2, 3, 6]),  # the upload says it
        (1, 2, 8, [0, 5]),
        (0, None, 8, [2, 3, 6]),
    ],
)
def test_which_side_is_the_touched_one(draws: int, told: int | None, items: int, touched: list[int]) -> None:
    step = torch.tensor([0.5, -0.1, -0.2, 0.4, -0.3])[:, None] * torch.tensor([1.0, 2.0, -1.0])
    rows = Rows(torch.tensor([[0, 2, 3, 5, 6]]), -step[None])
    scores = Membership("direction").pairs(*upload(rows, items, draws=draws, told=told))[0]
    assert (scores > 0).nonzero().squeeze(1).tolist() == touched


@pytest.mark.parametrize(("draws", "touched"), [(4, [1, 4]), (1, [0, 2, 3])])
def test_all_items_tell_nothing_by_their_number(draws: int, touched: list[int]) -> None:
    """2.5 touched ones would hit 2.5 · (1 − e⁻⁴) others: fewer, but there are no more to hit."""
    step = torch.tensor([-0.5, 0.1, -0.2, -0.4, 0.3])[:, None] * torch.tensor([1.0, 2.0, -1.0])
    rows = Rows(torch.arange(5)[None], -step[None])
    scores = Membership("direction").pairs(*upload(rows, 5, draws=draws))[0]
    assert (scores > 0).nonzero().squeeze(1).tolist() == touched


def test_noise_on_all_rows_uploads_all_items() -> None:
    """On which the rule for their number rests: nothing else says that a table is whole."""
    fed = federation(phones(synthetic(users=10)), FedMF(200, 1, dim=4), None, Laplace(rows="all"))
    for exchange in probe(fed, fed.start()):
        sent = exchange.received.values["item"]
        assert isinstance(sent, Rows)
        assert bool(((sent.row >= 0).sum(1) == 200).all())


@pytest.mark.parametrize(
    ("touched", "drawn", "draws", "items"),
    [
        (100, 346, 4, 1682),  # the usual: far fewer
        (740, 900, 4, 1682),  # just below half of the catalogue
        (1200, 480, 4, 1682),  # 480 events hit 956 of 1,202 others, not 1,200 of them
        (2314, 1390, 4, 3706),
        (100, 97, 1, 1682),  # one draw each: no more drawn than touched
    ],
)
def test_how_many_others_so_few_events_can_have_drawn(
    touched: int, drawn: int, draws: int, items: int
) -> None:
    """Rows along one line, the touched ones first: whichever way round it lies, they are found."""
    for sign in (1.0, -1.0):
        step = torch.cat([torch.full((touched, 1), sign), torch.full((drawn, 1), -sign)])
        rows = Rows(torch.arange(touched + drawn)[None], -step[None])
        scores = Membership("direction").pairs(*upload(rows, items, draws=draws))[0]
        assert (scores > 0).nonzero().squeeze(1).tolist() == list(range(touched))


def test_a_line_that_tells_nothing_apart_does_not_name_everything() -> None:
    """600 rows on one side: no 600 events draw nothing, nor do none draw 600; about 116 would draw 484."""
    rows = Rows(torch.arange(600)[None], -torch.ones(1, 600, 1))
    scores = Membership("direction").pairs(*upload(rows, 1682, draws=5))[0]
    assert int((scores > 0).sum()) == 0


def test_auc_per_user_by_hand() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 2.0]])
    touched = [torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([2])]
    # first: pairs (3 > 2, 3 > 0, 1 < 2, 1 > 0) = 3 of 4; second: all ties; third: one tie, two below
    assert per_user(scores, touched).tolist() == pytest.approx([0.75, 0.5, 2.5 / 3])


def test_a_user_who_touched_everything_tells_nothing_by_it() -> None:
    assert per_user(torch.tensor([[3.0, 1.0]]), [torch.tensor([0, 1])]).tolist() == [0.5]


@pytest.mark.parametrize(("weigh", "bar"), [("examples", 0.99), ("clients", 0.94)])
def test_an_undefended_upload_tells_what_its_user_touched(weigh: Any, bar: float) -> None:
    """Where the number of events is not told, users who touch as many rows as they draw turn it round."""
    data = synthetic(users=60)
    protocol, plan = replace(GRADIENTS, weigh=weigh), {"batch": 4096, "optimiser": "adam", "lr": 0.05}
    fed = federation(phones(data), FedMF(data.n_items, 1, dim=8), protocol, None, **plan)
    state = fed.run(fed.start(), rounds=10)
    log = fed.clients.log
    found = membership(see(fed, state), log.user, log.item, People.of(data), 200)
    assert found is not None
    assert found["direction"]["value"] > bar
    assert 0.6 < found["rows"]["low"] <= found["rows"]["value"] <= found["rows"]["high"] < 0.9
    assert (found["worst"], found["users"], found["items"]) == ("direction", 60, data.n_items)


@pytest.mark.parametrize("negatives", [1, 2, 4])
def test_the_number_of_negatives_does_not_turn_it_round(negatives: int) -> None:
    """With one negative each, as many rows are pushed away as are pulled, or fewer: some are drawn twice."""
    data = synthetic(users=60)
    plan = {"batch": 4096, "optimiser": "adam", "lr": 0.05, "negatives": negatives}
    fed = federation(phones(data), FedMF(data.n_items, 1, dim=8), GRADIENTS, None, **plan)
    state = fed.run(fed.start(), rounds=10)
    log = fed.clients.log
    found = membership(see(fed, state), log.user, log.item, People.of(data), 100)
    assert found is not None
    assert found["direction"]["value"] > 0.9


def test_noise_alone_tells_nothing_but_the_rows() -> None:
    @dataclass(frozen=True)
    class Noise(Defence):
        def on_upload(self, upload: Message, device: Device) -> Message:
            item = upload["item"]
            assert isinstance(item, Rows)
            return {**upload, "item": Rows(item.row, device.keys.fold("n").normal(*item.value.shape))}

    data = synthetic(users=80)
    fed = federation(phones(data), FedMF(data.n_items, 1, dim=8), GRADIENTS, Noise(), lr=0.05)
    log = fed.clients.log
    found = membership(see(fed, fed.start()), log.user, log.item, People.of(data), 200)
    assert found is not None
    assert abs(found["direction"]["value"] - 0.5) < 0.03
    assert found["rows"]["value"] > 0.6  # which rows were sent is in the clear


def test_silos_and_vectors_have_no_upload_of_one_user() -> None:
    data = synthetic(users=30)
    clients = silos(data, 3)
    fed = federation(clients, FedMF(data.n_items, clients.n_seats, dim=4), None, None)
    nobody = torch.zeros(0, dtype=torch.int64)
    assert membership(see(fed, fed.start()), nobody, nobody, People({}, nobody), 100) is None
    assert (
        membership(Seen.of_vectors(Keys.seed(0).normal(5, 2)), nobody, nobody, People({}, nobody), 100)
        is None
    )


@pytest.mark.parametrize("way", ["rows", "norms", "direction"])
def test_nobody_elses_upload_matters(way: Literal["rows", "norms", "direction"]) -> None:
    rows = Rows(torch.tensor([[0, 1, 2], [1, 3, 4]]), Keys.seed(3).normal(2, 3, 4))
    both = Membership(way).pairs(*upload(rows, 5))
    alone = Membership(way).pairs(*upload(Rows(rows.row[:1], rows.value[:1]), 5))
    assert torch.allclose(both[:1], alone, atol=1e-6)
