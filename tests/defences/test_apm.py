"""APM: the paper's budgets by part, its two places for the noise, and what the ledger makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.noisy import blurred, clients, device, number, step_of
from tests.worlds import checkerboard, digest, federation, held, largest, phones, run, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows, Scope, part_of
from veilrec.defence import Defence, chain
from veilrec.defences.apm import APM, component_of
from veilrec.defences.laplace import Laplace
from veilrec.errors import BadInput
from veilrec.model import Recommender
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.privacy.ledger import Ledger
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import one

MODELS: dict[str, Any] = {
    "FedMF": lambda: FedMF(24, dim=4),
    "FedMF exposed": lambda: FedMF(24, dim=4, user="exposed"),
    "FedNCF": lambda: FedNCF(24, dim=4, head=(6, 5)),
    "FedNCF neumf": lambda: FedNCF(24, dim=4, kind="neumf", tower_dim=3, head=(6, 5)),
    "FedNCF private head": lambda: FedNCF(24, dim=4, head=(6,), sharing="private"),
    "FedGCN": lambda: FedGCN(24, dim=4, head=(6,)),
    "FedLightGCN": lambda: FedLightGCN(24, dim=4, user="exposed"),
}


def fed_of(defence: Defence, model: Recommender | None = None, **plan: Any) -> Federation:
    settings = {"lr": 0.5, "chunk": 5, "batch": 4, **plan}
    protocol = settings.pop("protocol", None)
    return federation(
        phones(checkerboard()), model or FedNCF(24, dim=4, head=(6,)), protocol, defence, **settings
    )


def sent_by(fed: Federation) -> dict[int, Message]:
    return {k: one(e.received.values, place) for k, (e, place) in uploads_of(fed)[1].items()}


def rows_of(value: Tensor | Rows) -> dict[int, Tensor]:
    """The rows that travel, by number."""
    assert isinstance(value, Rows)
    return {int(r): v for r, v in zip(value.row, value.value, strict=True) if r >= 0}


# Budgets.

TABLE = {  # RELIABILITY E10: ε and λ by component, as the paper prints them
    "section-5.7": {
        "user": (30, "0.033"),
        "item": (60, "0.017"),
        "mlp1": (40, "0.025"),
        "mlp2": (50, "0.020"),
    },
    "equation-11": {
        "user": (30, "0.033"),
        "item": (40, "0.025"),
        "mlp1": (50, "0.020"),
        "mlp2": (60, "0.017"),
    },
}


@pytest.mark.parametrize("order", TABLE)
def test_budgets_follow_the_table(order: Any) -> None:
    defence = APM(order=order)
    found = {c: (int(defence.budget(c)), f"{float(defence.noise.scale_of(c)):.3f}") for c in TABLE[order]}
    assert found == TABLE[order]
    assert all(defence.noise.scale_of(c) == Fraction(1, epsilon) for c, (epsilon, _) in TABLE[order].items())


def test_the_default_is_what_was_measured() -> None:
    assert APM().ranking == APM(order="section-5.7").ranking == ("user", "mlp1", "mlp2", "item")


def test_fixed_budgets_are_settings() -> None:
    """FixRec-max has the largest λ everywhere, FixRec-min the smallest."""
    for epsilon in (30.0, 60.0):
        fixed = APM(low=epsilon, high=epsilon)
        assert {fixed.budget(part) for part in ("user", "item", "mlp1", "predict")} == {Fraction(epsilon)}


@pytest.mark.parametrize("low", [0.15, 3.0, 30.0])
def test_one_number_moves_both_ends(low: float) -> None:
    """Without `high`, ε ends at twice where it begins: 60 for the paper's 30."""
    defence = APM(low=low)
    assert defence.high is None
    assert APM().most == 60.0
    assert defence.budget("user") == Fraction(str(low))
    assert defence.budget("item") == 2 * Fraction(str(low))
    assert defence.noise.scale_of("item") * 2 == defence.noise.scale_of("user")
    assert defence.budget("mlp1") == APM(low=low, high=2 * low).budget("mlp1") == Fraction(str(low)) * 4 / 3


def test_other_orders_and_bounds() -> None:
    defence = APM(order=("item", "mlp2"), low=0.1, high=0.3, clip=0.2)
    assert defence.budget("item") == Fraction(1, 10)
    assert defence.budget("mlp7") == Fraction(3, 10)
    assert defence.noise.scale_of("item.weight") == 4
    assert APM(order=("user",)).budget("user") == 30
    with pytest.raises(BadInput, match=r'^defence\.order: "user" is missing'):
        defence.budget("user")


# Parts.


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("FedMF", {"user": "user", "item": "item"}),
        ("FedLightGCN", {"user": "user", "item": "item"}),
        ("FedGCN", {"user": "user", "item": "item", "mlp1": "mlp1", "mlp2": "mlp2"}),
        ("FedNCF", {"user": "user", "item": "item", "mlp1": "mlp1", "mlp2": "mlp2", "mlp3": "mlp2"}),
        (
            "FedNCF neumf",
            {"user": "user", "mlp_user": "user", "item": "item", "mlp_item": "item", "mlp1": "mlp1"}
            | {"mlp2": "mlp2", "predict": "mlp2"},
        ),
    ],
)
def test_parts_are_components_by_their_names(model: str, expected: dict[str, str]) -> None:
    assert {part: component_of(part, {}) for part in MODELS[model]().parts} == expected
    assert component_of("mlp10", {}) == "mlp2"


def test_a_name_that_says_nothing_must_be_explained() -> None:
    with pytest.raises(BadInput, match=r'^defence\.components: part "head" is no component.*name one for it'):
        component_of("head", {})
    assert component_of("head", {"head": "mlp2"}) == "mlp2"
    assert component_of("user", {"user": "mlp1"}) == "mlp1"


@pytest.mark.parametrize("rows", ["all", pytest.param("touched", marks=pytest.mark.slow)])
def test_each_part_has_its_scale(rows: Any) -> None:
    """RELIABILITY E1 for every component, on whole tensors of 125,000 numbers."""
    names = {"user": 30, "item": 60, "mlp1.weight": 40, "predict.bias": 50}
    plain = {name: torch.zeros(25, 5000) for name in names}
    sent = blurred(APM(rows=rows), {**plain}, clients(25))
    for name, epsilon in names.items():
        noise = sent[name].double() * epsilon
        assert abs(float(noise.abs().mean()) - 1) < 0.0125, name
        assert abs(float(noise.mean())) < 4.417 * math.sqrt(2 / 125_000)


def test_planted_one_scale_for_all_parts_is_found() -> None:
    sent = blurred(Laplace(), {"user": torch.zeros(25, 5000)}, clients(25))
    assert abs(float(sent["user"].double().abs().mean()) * 30 - 1) > 0.0125


# Runs.


@pytest.mark.parametrize(
    ("rows", "every"),
    [
        ("all", "upload"),
        *(pytest.param(rows, "epoch", marks=pytest.mark.slow) for rows in ("all", "touched")),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_it_works_with_every_model(model: str, rows: Any, every: Any) -> None:
    defence = APM(rows=rows, every=every)
    feds = [fed_of(defence, MODELS[model](), epochs=2, workers=w) for w in (1, 2)]
    states = [run(fed) for fed in feds]
    assert digest(states[0]) == digest(states[1])
    assert all(value.isfinite().all() for value in states[0].server.values())
    message = next(iter(sent_by(feds[0]).values()))
    tables = {n: v for n, v in message.items() if isinstance(v, Rows)}
    assert tables
    assert all((len(v.row) == 24) == (rows == "all") or rows == "touched" for v in tables.values())
    for name, value in message.items():  # all that leaves is on its lattice, and no weight is left out
        whole = value.value if isinstance(value, Rows) else value
        step = step_of(1 / float(defence.budget(part_of(name))), 0.5)
        assert torch.equal(whole / step, (whole / step).round()), name


@pytest.mark.parametrize("every", ["upload", "epoch"])
@pytest.mark.parametrize("model", ["FedMF", "FedNCF private head"])
def test_what_is_private_is_never_touched(model: str, every: Any) -> None:
    """With nothing learned, a device's own weights stay as they were."""
    fed = fed_of(APM(every=every), MODELS[model](), lr=0.0, epochs=2)
    before, after = held(fed, fed.start()), held(fed, run(fed, 2))
    assert fed.model.names(Scope.PRIVATE)
    assert all(torch.equal(before[name], after[name]) for name in fed.model.names(Scope.PRIVATE))


# After every epoch.


def numbers(key: Keys, rows: list[int], width: int) -> Tensor:
    """``[rows, width]`` noise with scale 1, number by number."""
    word = int(key.value) % 2**64
    return torch.tensor([[number("laplace", word, row, c, width) for c in range(width)] for row in rows])


@pytest.mark.parametrize("rows", ["all", "touched"])
def test_noise_after_every_epoch_is_clipped_in_the_next_and_sent_as_it_is(rows: Any) -> None:
    """Nothing is learned: touched rows are clipped and noised twice, untouched ones once, on their way."""
    plan = {"lr": 0.0, "epochs": 2, "negatives": 1}
    fed = fed_of(APM(every="epoch", rows=rows, low=2.0, high=2.0), FedMF(24, dim=4), **plan)
    table, bar = fed.start().server["item"], 3 * step_of(0.5, 0.5)
    bare = sent_by(fed_of(Defence(), FedMF(24, dim=4), **plan))
    touched = {k: set(rows_of(message["item"])) for k, message in bare.items()}
    for client, message in list(sent_by(fed).items())[::6]:
        keys = fed.fleet.client_keys(torch.tensor([client]), 0)
        first, second = (keys.fold("after").fold(epoch).fold("item") for epoch in (0, 1))
        sent = rows_of(message["item"])
        assert sent.keys() == (set(range(24)) if rows == "all" else touched[client])
        some = sorted(touched[client])
        once = table[some].clamp(-0.5, 0.5) + 0.5 * numbers(first, some, 4)
        twice = once.clamp(-0.5, 0.5) + 0.5 * numbers(second, some, 4)
        assert largest(torch.stack([sent[row] for row in some]), twice) < bar
        upload = keys.fold("upload").fold("item")
        for row in sent.keys() - touched[client]:
            assert largest(sent[row], table[row].clamp(-0.5, 0.5) + 0.5 * numbers(upload, [row], 4)[0]) < bar


def test_planted_noise_at_the_upload_as_well_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(APM, "on_upload", lambda self, upload, device: self._noise.apply(upload, device))
    with pytest.raises(AssertionError):
        test_noise_after_every_epoch_is_clipped_in_the_next_and_sent_as_it_is("touched")


def test_an_own_vector_that_is_uploaded_is_noised_on_its_way_out() -> None:
    fed = fed_of(APM(every="epoch"), FedMF(24, dim=4, user="exposed"), lr=0.0, epochs=2)
    plain = held(fed, fed.start())["user"]
    state, seen = uploads_of(fed)
    assert torch.equal(held(fed, state)["user"], plain)
    for client, (exchange, place) in list(seen.items())[::6]:
        keys = fed.fleet.client_keys(torch.tensor([client]), 0).fold("upload").fold("user")
        expected = plain[client].clamp(-0.5, 0.5) + numbers(keys, [0], 4) / 30
        assert largest(exchange.received.values["user"][place], expected) < 3 * step_of(1 / 30, 0.5)  # type: ignore[call-overload]


def test_it_acts_after_epochs_only_where_it_is_told() -> None:
    assert not APM().acts("after_epoch")
    assert APM(every="epoch").acts("after_epoch")
    assert chain(Laplace(), APM(every="epoch")).acts("after_epoch")


# The ledger.


def told(defence: Defence, rounds: int = 2) -> dict[str, Any]:
    fed = fed_of(defence, FedGCN(24, dim=4, head=(6,)), cohort=0.5)
    ledger = Ledger.of(fed)
    run(fed, rounds, watch=[ledger])
    return ledger.summary()


def test_the_ledger_adds_up_thirty_to_sixty_a_value() -> None:
    model = FedGCN(24, dim=4, head=(6,))
    sizes = dict.fromkeys(model.parts, 0)
    for name, weight in model.named_parameters():
        sizes[part_of(name)] += weight.numel()
    upload = sum(sizes[part] * int(APM().budget(part)) for part in sizes)
    summary = told(APM())
    assert summary["guarantee"] is True
    assert summary["per_upload"]["epsilon"] == upload
    assert summary["composed"]["epsilon"]["max"] == upload * summary["composed"]["uploads"]["max"]
    assert "ε = 30 to 60 per coordinate" in summary["statement"]
    assert "an ε this large rules nothing out by itself" in summary["statement"]
    costs = {entry["part"]: entry["epsilon_per_coordinate"] for entry in summary["mechanisms"]}
    assert costs == {"user": 30, "mlp1": 40, "mlp2": 50, "item": 60}
    assert {entry["defence"] for entry in summary["mechanisms"]} == {"apm"}
    assert not any("touched rows" in note for note in summary["notes"])
    assert any("not private" in note for note in summary["notes"])


def test_the_ledger_says_what_is_in_the_clear_and_what_counts() -> None:
    assert any("touched rows is in the clear" in note for note in told(APM(rows="touched"), 1)["notes"])
    epochs, once = (told(APM(every=every), 1) for every in ("epoch", "upload"))  # type: ignore[arg-type]
    assert any("after every local epoch: the last one counts" in note for note in epochs["notes"])
    assert not any("epoch" in note for note in once["notes"])
    assert epochs["per_upload"] == once["per_upload"]


# What is refused.


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"clip": 0.0}, "clip"),
        ({"low": 0.0}, "low"),
        ({"low": 50.0, "high": 40.0}, "high"),
        ({"high": math.inf}, "high"),
        ({"high": math.nan}, "high"),
        ({"low": 1e308}, "low"),
        ({"order": ("user", "usr")}, "order"),
        ({"order": ("user", "user")}, "order"),
        ({"order": ()}, "order"),
        ({"components": {"head": "mlp3"}}, "components"),
        ({"every": "epoch", "what": "gradients"}, "every"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], key: str) -> None:
    with pytest.raises(BadInput, match=rf"^defence\.{key}: "):
        APM(**options)


def test_what_does_not_fit_is_refused_before_a_run() -> None:
    gradients = FedAvg(sends="gradients", server="sgd")
    with pytest.raises(BadInput, match=r"^defence\.every: .* gradients"):
        APM(every="epoch").declares(FedMF(24, dim=4), gradients)
    with pytest.raises(BadInput, match=r"^defence\.what"):
        APM().declares(FedMF(24, dim=4), gradients)
    assert APM(what="gradients").declares(FedMF(24, dim=4), gradients)
    strange = APM(every="epoch", components={"mlp1": "item"})
    with pytest.raises(BadInput, match=r'^defence\.components: part "mlp1" is no table of items'):
        strange.declares(FedNCF(24, dim=4), FedAvg())
    assert replace(strange, every="upload").declares(FedNCF(24, dim=4), FedAvg())


def test_one_device_alone_draws_the_same() -> None:
    plain = {"user.weight": torch.zeros(6, 3, 2), "mlp1": torch.ones(6, 5), "item": torch.zeros(6, 4, 3)}
    together = blurred(APM(), {**plain}, clients(6))
    for k in range(6):
        alone = APM().on_upload({n: v[k] for n, v in plain.items()}, device(Keys(clients(6).value[k])))
        assert all(torch.equal(alone[n], together[n][k]) for n in plain)  # type: ignore[arg-type]


def test_a_component_for_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match=r"components\.itme: the model has no such part"):
        APM(components={"itme": "item"}).declares(FedMF(9, 1, dim=2), FedAvg())
