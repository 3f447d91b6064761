"""Sequential recommenders: what a state may read, what it is equal to, and what is there at the test."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.worlds import federation, held, largest, log_of, phones, run
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.clients import Batch, ending
from veilrec.engine.evaluation import Evaluation
from veilrec.interactions import Interactions
from veilrec.model import Device, Recommender, bind
from veilrec.models.common.sequences import SequenceModel
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.gru4rec import GRU4Rec
from veilrec.models.sasrec import SASRec

MODELS = {
    "SASRec": lambda **more: SASRec(9, dim=4, **more),
    "GRU4Rec": lambda **more: GRU4Rec(9, dim=4, **more),
}
each_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())


def drawn(model: Recommender) -> Params:
    keys = Keys.seed(4)
    return {
        name: keys.fold(name).normal(*weight.shape, dtype=torch.float64)
        for name, weight in model.named_parameters()
    }


def states(model: SequenceModel, history: list[int]) -> Tensor:
    """``[t, dim]`` the states after each item of a history, -1 where none is."""
    item = torch.tensor([history])
    found: Tensor = bind(model, drawn(model), lambda m: m._read(item.clamp(min=0), item >= 0)[0])
    return found


@each_model
def test_a_state_reads_nothing_that_comes_after_it(build: type[SequenceModel]) -> None:
    model = build(length=5)
    one, other = states(model, [1, 2, 3, 4, 5]), states(model, [1, 2, 3, 8, 0])
    assert torch.equal(one[:3], other[:3])
    assert largest(one[3:], other[3:]) > 1e-3


@each_model
def test_a_state_reads_all_that_came_before_it(build: type[SequenceModel]) -> None:
    model = build(length=5)
    assert largest(states(model, [1, 2, 3, 4, 5])[-1], states(model, [8, 2, 3, 4, 5])[-1]) > 1e-3


@each_model
def test_what_pads_a_history_is_not_read(build: type[SequenceModel]) -> None:
    """A short history has the state that it has alone: positions count from the end."""
    whole, alone = build(length=5), build(length=5)
    assert largest(states(whole, [-1, -1, 3, 4, 5])[2:], states(alone, [3, 4, 5])) < 1e-12


def test_gated_units_are_those_of_torch() -> None:
    model = GRU4Rec(9, dim=4, units=3, length=6)
    params = drawn(model)
    theirs = torch.nn.GRU(4, 3, batch_first=True, dtype=torch.float64)
    turned = torch.cat([torch.arange(3, 6), torch.arange(3), torch.arange(6, 9)])  # reset before update there
    named = {"weight_ih_l0": params["gates.input"].T, "weight_hh_l0": params["gates.state"].T}
    named |= {"bias_ih_l0": params["gates.bias"][0], "bias_hh_l0": params["gates.bias"][1]}
    item = params["item"][torch.tensor([[1, 2, 3, 4, 5, 6]])]
    expected, _ = torch.func.functional_call(theirs, {n: w[turned] for n, w in named.items()}, (item,))
    expected = F.layer_norm(expected @ params["back"], (4,), params["norm.weight"], params["norm.bias"], 1e-6)
    assert largest(states(model, [1, 2, 3, 4, 5, 6]), expected[0]) < 1e-12


def test_attention_is_that_of_torch() -> None:
    model = SASRec(9, dim=4, blocks=1, heads=2, length=4)
    params = drawn(model)
    x = 2 * params["item"][torch.tensor([1, 2, 3, 4])] + params["position"]

    def dense(name: str, y: Tensor) -> Tensor:
        return y @ params[f"block1.{name}.weight"] + params[f"block1.{name}.bias"]

    def norm(name: str, y: Tensor) -> Tensor:
        return F.layer_norm(y, (4,), params[f"{name}.weight"], params[f"{name}.bias"], 1e-6)

    asking = norm("block1.before", x)
    parts = [
        dense(n, y).unflatten(-1, (2, 2)).transpose(0, 1)
        for n, y in zip(("query", "key", "value"), (asking, x, x), strict=True)
    ]
    seen = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(0, 1).flatten(-2)
    found = norm("block1.between", asking + dense("out", seen))
    expected = norm("norm", found + dense("second", dense("first", found).relu()))
    assert largest(states(model, [1, 2, 3, 4]), expected) < 1e-12


def test_the_loss_counts_each_position_that_follows_an_item() -> None:
    """Items 1, 2 behind padding: one position, from item 1 to item 2 and not to item 5."""
    model = SASRec(9, dim=4, length=3)
    batch = Batch.by_hand(9, item=[0, 1, 2], negative=[[7], [7], [5]])._replace(
        weight=torch.tensor([0.0, 1, 1]).double()
    )
    params = drawn(model)
    state = states(model, [-1, 1])[-1]
    score = [float(state @ params["item"][k]) for k in (2, 5)]
    expected = F.softplus(torch.tensor(-score[0])) + F.softplus(torch.tensor(score[1]))
    device = _device(batch)
    assert abs(float(bind(model, params, lambda m, d: m.loss(d), device)) - float(expected)) < 1e-6


def _device(batch: Batch) -> Device:
    return Device(batch, {}, {}, Keys.seed(0), torch.tensor(0), torch.tensor(0))


def ring(users: int = 40, items: int = 12, length: int = 8) -> Interactions:
    """A world in which item k + 1 follows item k: the last item says everything, all before it nothing."""
    start = [(5 * user) % items for user in range(users)]
    return log_of(*((u, (start[u] + t) % items, t) for u in range(users) for t in range(length)), items=items)


@pytest.mark.slow
@each_model
def test_what_follows_is_learned(build: object) -> None:
    model = {"SASRec": SASRec, "GRU4Rec": GRU4Rec}[next(n for n, b in MODELS.items() if b is build)]
    judge = Evaluation(ks=(1, 2), select="hr@1")
    fed = federation(
        phones(ring()),
        model(12, dim=8, length=6, scale=0.1),
        evaluation=judge,
        rounds=120,
        optimiser="adam",
        lr=0.005,
    )
    state = run(fed, 120)
    assert fed.evaluate(state, "validation").means()["hr@1"] > 0.9
    assert fed.evaluate(state, "test").means()["hr@1"] > 0.9


def test_histories_end_with_what_came_later() -> None:
    history, later = torch.tensor([[[1, 2, 3]], [[-1, -1, 4]], [[5, 6, 7]]]), torch.tensor([[8], [9], [-1]])
    assert ending(history, later).tolist() == [[[2, 3, 8]], [[-1, 4, 9]], [[5, 6, 7]]]
    assert torch.equal(ending(history, None), history)
    assert ending(history[..., :0], later).shape == (3, 1, 0)


def test_only_models_that_go_by_the_order_are_tested_with_it() -> None:
    for model, last in ((FedLightGCN(12, dim=4), 5), (SASRec(12, dim=4, length=3), 6)):
        fleet = federation(phones(ring()), model).fleet
        everyone = torch.arange(40)
        assert int(fleet.everything(everyone, "test").history[0, 0, -1]) == last  # of items 0 to 5, 6, and 7
        assert int(fleet.everything(everyone, "validation").history[0, 0, -1]) == 5


def test_private_items_begin_with_rows_of_their_own_and_learn() -> None:
    """From rows of zero a recurrent network stands still: no state, and so no slope."""
    build = {"items": "private", "sharing": "private", "dim": 4, "length": 6}
    fed = federation(phones(ring(6)), GRU4Rec(12, **build), rounds=30, optimiser="adam", lr=0.05)  # type: ignore[arg-type]
    losses = [row["loss"] for _, row in fed.rounds(fed.start())]
    assert losses[-1] < 0.5 * losses[0]
    assert held(fed, run(fed))
