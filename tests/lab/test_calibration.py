"""Calibration: a leak planted in a component is found there, and the order follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.worlds import federation, phones, run, silos
from veilrec.attack import Public, Seen
from veilrec.base.keys import Keys
from veilrec.base.params import Part, Rows, Scope, part_of
from veilrec.datasets.synthetic import synthetic
from veilrec.defences.apm import APM
from veilrec.defences.early_stop import EarlyStop
from veilrec.defences.laplace import Laplace
from veilrec.engine.probe import public, see
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.lab import calibration
from veilrec.lab.calibration import (
    Calibration,
    Found,
    allocation,
    calibrated,
    components_of,
    leaks,
    undefended,
)
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.metrics.comparison import Measure
from veilrec.model import Recommender, with_part
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.recipe.catalogue import build
from veilrec.wire.uploads import Exchange

USERS, ITEMS = 240, 40
QUICK = Threat(attributes=("gender",), resamples=200, permutations=99)
PLANTED = {"mlp2": 3.0, "item": 1.6, "user": 0.7, "mlp1": 0.0}  # standard deviations; not the paper's order


def data() -> Interactions:
    return synthetic(users=USERS, items=ITEMS)


def everything_uploaded() -> Recommender:
    return FedNCF(ITEMS, 1, dim=4, head=(4,), user="exposed")


def public_of(model: Recommender) -> Public:
    return public(federation(phones(data()), model))


def planted(strength: Mapping[str, float], seed: int = 0) -> tuple[Seen, People]:
    """Uploads that are noise alone, but for gender: so much of it in each part."""
    log = data()
    fed = federation(phones(log), everything_uploaded())
    true = see(fed, run(fed))
    assert true.public is not None
    label = log.attributes["gender"].double() - 0.5
    keys = Keys.seed(seed).fold("planted")

    def value(name: str, sent: Tensor | Rows, user: Tensor) -> Tensor | Rows:
        if isinstance(sent, Rows):
            there = torch.arange(ITEMS).expand(len(user), ITEMS)
            table = torch.zeros(len(user), ITEMS, 4)
            return Rows(there, value(name, table, user))  # type: ignore[arg-type]
        noise = keys.fold(name).fold(user).normal(*sent.shape[1:])
        shape = (len(user), *(1 for _ in sent.shape[1:]))
        width = sent[0].numel() ** 0.5  # so that parts of any size tell the same
        return (noise + (strength[part_of(name)] / width * label[user]).reshape(shape)).float()

    def probe(*parts: object) -> Iterator[Exchange]:
        for exchange in true.probe():
            user = exchange.received.cohort
            values = {n: value(n, v, user) for n, v in exchange.received.values.items()}
            yield replace(exchange, received=replace(exchange.received, values=values))

    return Seen(true.public, probe), People.of(log)


def measured(
    strength: Mapping[str, float], seed: int = 0
) -> tuple[dict[str, Found], dict[str, tuple[str, ...]]]:
    seen, people = planted(strength, seed)
    assert seen.public is not None
    parts = components_of(seen.public, {})
    return leaks(seen, people, parts, QUICK, seed), parts


@pytest.fixture(scope="module")
def ranked() -> Calibration:
    found, parts = measured(PLANTED)
    return calibrated([found], parts)


def right(found: Calibration) -> bool:
    return found.order == ["mlp2", "item", "user", "mlp1"]


def test_the_order_is_that_of_the_leaks_planted(ranked: Calibration) -> None:
    assert right(ranked)
    by = {one.name: one for one in ranked.components}
    assert by["mlp2"].attributes["gender"] > 0.9
    assert by["mlp2"].score.value == pytest.approx(by["mlp2"].attributes["gender"] - 0.5)
    assert abs(by["mlp1"].score.value) < 0.12
    for one in ranked.components:
        assert one.score.low is not None
        assert one.score.high is not None
        assert one.score.low <= one.score.value <= one.score.high


def test_an_order_turned_round_is_caught(monkeypatch: pytest.MonkeyPatch, ranked: Calibration) -> None:
    """A planted bug: the most resistant comes first, and would get the most noise."""
    found = {
        one.name: Found(one.score.value, [one.score.value], {"gender": (0.5, "")})
        for one in ranked.components
    }
    parts = {one.name: one.parts for one in ranked.components}
    assert right(calibrated([found], parts))
    monkeypatch.setattr(
        calibration, "sorted", lambda names, key, reverse: sorted(names, key=key), raising=False
    )
    assert not right(calibrated([found], parts))


def test_what_gets_most_noise_is_what_leaks_most(ranked: Calibration) -> None:
    defence = build("defences", "APM", {"order": ranked.order}, "defence.0")
    shares = allocation(public_of(everything_uploaded()), defence)
    assert [(one.component, one.epsilon) for one in shares] == [
        ("mlp2", 30.0),
        ("item", 40.0),
        ("user", 50.0),
        ("mlp1", 60.0),
    ]


def scored(**components: float) -> dict[str, Found]:
    """Findings without doubt about the users."""
    return {
        name: Found(score, [score] * 3, {"gender": (0.5 + score, "mlp-apm")})
        for name, score in components.items()
    }


def test_neighbours_that_differ_by_less_than_their_doubt_are_named() -> None:
    wide = {
        "user": Found(0.3, [0.2, 0.3, 0.4], {"gender": (0.8, "")}),
        "item": Found(0.28, [0.25, 0.31, 0.27], {"gender": (0.78, "")}),
        "mlp1": Found(0.0, [-0.02, 0.0, 0.02], {"gender": (0.5, "")}),
    }
    found = calibrated([wide], {"mlp1": ("mlp1",), "item": ("item",), "user": ("user",)})
    assert found.order == ["user", "item", "mlp1"]
    assert found.unsure == [("user", "item")]
    assert found.differences[0].value == pytest.approx(0.02)


def test_a_difference_is_that_of_the_same_people() -> None:
    """Two intervals overlap by far, but on every resample the one is 0.1 above the other."""
    luck = [-0.2, 0.0, 0.2]
    both = {
        "user": Found(0.3, [0.3 + one for one in luck], {"gender": (0.8, "")}),
        "item": Found(0.2, [0.2 + one for one in luck], {"gender": (0.7, "")}),
    }
    assert calibrated([both], {"item": ("item",), "user": ("user",)}).unsure == []


def test_runs_are_averaged_and_seeds_that_disagree_leave_doubt() -> None:
    parts = {"user": ("user",), "item": ("item",)}
    found = calibrated([scored(user=0.1, item=0.3), scored(user=0.3, item=0.2)], parts)
    assert found.order == ["item", "user"]
    assert found.components[0].score.value == pytest.approx(0.25)
    assert found.components[0].attributes["gender"] == pytest.approx(0.75)
    assert found.unsure == [("item", "user")]
    agreeing = calibrated([scored(user=0.1, item=0.3), scored(user=0.1, item=0.3)], parts)
    assert agreeing.unsure == []
    assert agreeing.components[0].score == pytest.approx(Measure(0.3, 0.3, 0.3))


def test_surely_below_chance_counts_as_a_leak() -> None:
    verdict = {
        "leaning": "below",
        "auc": {"value": 0.3},
        "replicates": [0.28, 0.32],
        "attacker": "a/logistic",
    }
    plain = {"leaning": "none", "auc": {"value": 0.48}, "replicates": [0.45, 0.55], "attacker": "a/mlp-apm"}
    found = calibration._found({"gender": {"verdict": verdict}, "age": {"verdict": plain}})
    assert found.score == pytest.approx((0.2 - 0.02) / 2)
    assert found.replicates == pytest.approx([(0.22 - 0.05) / 2, (0.18 + 0.05) / 2])
    assert found.attributes == {"gender": (0.3, "logistic"), "age": (0.48, "mlp-apm")}


def test_values_are_left_out_and_nothing_but_values_is_refused() -> None:
    seen, people = planted(PLANTED)
    quick = Threat(resamples=100, permutations=99)
    found = leaks(seen, people, {"mlp2": ("mlp2",)}, quick)
    assert set(found["mlp2"].attributes) == set(people.labels)
    with pytest.raises(BadInput, match="no attribute has classes"):
        leaks(seen, people, {"mlp2": ("mlp2",)}, replace(quick, attributes=tuple(people.values)))
    with pytest.raises(BadInput, match="gender"):
        leaks(seen, people, {"mlp2": ("mlp2",)}, replace(quick, attributes=("gendr",)))


# The allocation


@pytest.mark.parametrize(
    ("order", "epsilon"),
    [
        ("section-5.7", {"user": 30.0, "mlp1": 40.0, "mlp2": 50.0, "item": 60.0}),
        ("equation-11", {"user": 30.0, "item": 40.0, "mlp1": 50.0, "mlp2": 60.0}),
    ],
)
def test_the_paper_s_budgets(order: str, epsilon: dict[str, float]) -> None:
    model = FedGCN(ITEMS, dim=4, head=(4,))
    shares = allocation(public_of(model), build("defences", "APM", {"order": order}, "defence.0"))
    assert {one.part: one.epsilon for one in shares} == epsilon
    assert [one.place for one in shares] == [0, 1, 2, 3]
    for one in shares:
        assert one.scale == pytest.approx(2 * 0.5 / one.epsilon)


def test_parts_are_told_by_their_names_and_only_uploads_count() -> None:
    neumf = FedNCF(ITEMS, 1, kind="neumf", dim=4, head=(8, 4))
    assert components_of(public_of(neumf), {}) == {
        "item": ("item", "mlp_item"),
        "mlp1": ("mlp1",),
        "mlp2": ("mlp2", "predict"),
    }
    assert components_of(public_of(FedMF(ITEMS, 1, dim=4)), {}) == {"item": ("item",)}
    assert components_of(public_of(FedMF(ITEMS, 1, dim=4)), {"item": "mlp2"}) == {"mlp2": ("item",)}


def test_a_model_without_components_is_refused() -> None:
    alone = replace(public_of(FedMF(ITEMS, 1, dim=4)), schema={})
    with pytest.raises(BadInput, match="uploads no component"):
        components_of(alone, {})


def test_a_part_whose_name_says_nothing_must_be_named() -> None:
    odd = public_of(with_part(FedMF(ITEMS, 1, dim=4), "gate", nn.Linear(4, 4), Part(Scope.SHARED)))
    with pytest.raises(BadInput, match='part "gate" is no component'):
        components_of(odd, {})
    assert components_of(odd, {"gate": "mlp1"}) == {"item": ("item",), "mlp1": ("gate",)}


def test_an_order_without_a_component_of_the_model_is_refused() -> None:
    with pytest.raises(BadInput, match=r'defence\.order: "item" is missing'):
        allocation(public_of(FedMF(ITEMS, 1, dim=4)), APM(order=("user", "mlp1")))


# Which runs


def test_runs_with_noise_and_silos_are_refused() -> None:
    model = FedMF(ITEMS, 1, dim=4)
    undefended(federation(phones(data()), model), "runs/a")
    undefended(federation(phones(data()), model, defence=EarlyStop()), "runs/a")
    with pytest.raises(BadInput, match=r"^runs/a: is defended \(on_upload\)"):
        undefended(federation(phones(data()), model, defence=Laplace()), "runs/a")
    with pytest.raises(BadInput, match="is defended"):
        undefended(federation(phones(data()), model, defence=APM(every="epoch")), "runs/a")
    with pytest.raises(BadInput, match="is of silos"):
        undefended(federation(silos(data(), 6), FedMF(ITEMS, 40, dim=4)), "runs/a")
