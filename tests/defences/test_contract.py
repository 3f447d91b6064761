"""What every defence must do, whoever wrote it: the tests are run on all that the catalogue lists."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.contract import ONCE, Case, cases, plain_first
from tests.hooks import Push
from tests.worlds import checkerboard, digest, federation, held, largest, phones, run, uploads_of
from veilrec.base.params import Message, Rows, Scope, map_values
from veilrec.defence import HOOKS, Defence, chain
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.none import Undefended
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import encode, one

CASES = cases("defences")
PLAIN_FIRST = plain_first(CASES)
USERS = 14  # two chunks of seven
MODELS: dict[str, Any] = {
    "FedMF": lambda items: FedMF(items, dim=4),
    "FedNCF": lambda items: FedNCF(items, dim=4, head=(6,)),
}
TRAINED = [*plain_first(["FedNCF"], CASES), *plain_first(["FedMF"], CASES, varied=-1)]
ALONE = [*plain_first(["FedNCF"], CASES), *plain_first(["FedMF"], CASES, varied=-1)]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


def fed_of(defence: Defence, model: str = "FedNCF", **plan: Any) -> Federation:
    settings = {"lr": 0.5, "batch": 4, "chunk": 7, **plan}
    protocol = settings.pop("protocol", None)
    return federation(phones(checkerboard(USERS), 0.5), MODELS[model](USERS), protocol, defence, **settings)


def test_it_names_its_source_and_its_places(case: Case) -> None:
    text = sys.modules[case.entry.__module__].__doc__ or ""
    assert "Paper" in text
    (places,) = [line for line in text.splitlines() if line.startswith("Acts at:")]
    every = [
        other.build() for other in CASES if other.name == case.name
    ]  # some act where their options say so
    acting = [hook for hook in HOOKS if any(defence.acts(hook) for defence in every)]
    assert all(hook in places for hook in acting)
    assert all(hook in acting for hook in HOOKS if hook in places)


def test_it_is_frozen_and_only_its_settings(case: Case) -> None:
    defence = case.build()
    assert isinstance(defence, Defence)
    assert dataclasses.is_dataclass(defence)
    assert defence.__dataclass_params__.frozen
    assert defence == case.build()


@pytest.mark.parametrize(("model", "case"), TRAINED)
def test_same_keys_same_result(case: Case, model: str) -> None:
    runs = [run(fed_of(case.build(), model, workers=workers), 2) for workers in (1, 2)]
    assert len({digest(state) for state in runs}) == 1
    assert all(value.isfinite().all() for value in runs[0].server.values())


@pytest.mark.parametrize(("model", "case"), ALONE)
def test_a_cohort_is_one_by_one(case: Case, model: str) -> None:
    """In float64, so that what is left is no rounding."""
    plan = {"precision": "float64", "cohort": 0.5}
    feds = [fed_of(case.build(), model, **plan, chunk=chunk) for chunk in (1, 5)]
    (state, seen), (other, uploads) = (uploads_of(fed, 2) for fed in feds)
    assert len(seen) > USERS // 2  # some in the second round for the first time, or none would be new in it
    assert all(largest(state.server[name], other.server[name]) < 1e-9 for name in state.server)
    assert torch.equal(state.posts.owner, other.posts.owner)
    for client, (exchange, place) in seen.items():
        theirs, there = uploads[client]
        ours, same = one(exchange.received.values, place), one(theirs.received.values, there)
        assert all(alike(ours[name], same[name]) for name in ours)


BATCHED = [
    *(case.build() for case in CASES if "on_upload" in case.build().leads),
    *(Gaussian(clip_by="norm", what="change", rows=rows, clip=0.1) for rows in ("touched", "all")),
    *(Laplace(what=what, rows="all") for what in ("weights", "change")),
    Gaussian(clip_by="norm", clip=0.1, what="change", scale=0.0),
    Laplace(scale=0.0, rows="all"),
]


@pytest.mark.parametrize("defence", BATCHED, ids=str)
@pytest.mark.parametrize("model", ["FedNCF", pytest.param("FedMF", marks=pytest.mark.slow)])
def test_the_form_for_a_cohort_is_that_for_one_device(
    defence: Defence, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = set(getattr(defence, "parts", ())) - set(MODELS[model](USERS).parts)
    if lacking:
        with pytest.raises(BadInput, match=r"^defence\.parts: no part"):
            fed_of(defence, model)
        return
    _, batched = uploads_of(fed_of(defence, model), 2)
    monkeypatch.setattr(type(defence), "leads", frozenset())
    _, mapped = uploads_of(fed_of(defence, model), 2)
    assert sent_alike(batched, mapped)


LOSSES = ("penalty", "helper_loss")
FORMS = [
    pytest.param(case, loss, id=f"{case}-{loss}", marks=pytest.mark.slow if case.varied else ())
    for case in CASES
    for loss in LOSSES
    if loss in case.build().leads
]


@pytest.mark.parametrize(("case", "loss"), FORMS)
@pytest.mark.parametrize("chained", [False, True])
def test_losses_of_a_cohort_are_those_of_its_devices(
    case: Case, loss: str, chained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64: batched products add up in another order."""
    defence = chain(case.build(), Push(0.1)) if chained else case.build()
    plan = {"precision": "float64", "chunk": USERS}
    states = [run(fed_of(defence, **plan), 2)]
    monkeypatch.setattr(case.entry, "leads", frozenset(LOSSES) - {loss})
    states.append(run(fed_of(defence, **plan), 2))
    fed = fed_of(defence)
    assert all(largest(states[0].server[n], states[1].server[n]) < 1e-9 for n in states[0].server)
    own, other = (held(fed, state) for state in states)
    assert all(largest(own[name], other[name]) < 1e-9 for name in own)


@dataclasses.dataclass(frozen=True)
class Doubled(Push):
    """Pushes a cohort twice as far as its devices."""

    leads: ClassVar[frozenset[str]] = frozenset({"penalty"})

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        lead = device.keys.value.dim()  # 1 for a cohort
        return (1 + lead) * self.by * model.represent(device.batch).flatten(lead).sum(-1)


@dataclasses.dataclass(frozen=True)
class Halved(Doubled):
    """Says anew what one device is pushed by: the form for a cohort that it inherits is not its own."""

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return super().penalty(model, device) / 2


def test_planted_other_losses_of_a_cohort_are_noticed() -> None:
    users = [
        held(fed_of(d), run(fed_of(d)))["user"] for d in (Push(1.0), Doubled(1.0), Doubled(0.5), Halved(2.0))
    ]
    assert largest(users[0], users[1]) > 0.01
    assert torch.equal(users[0], users[2])
    assert torch.equal(users[0], users[3])


def test_planted_another_form_for_a_cohort_is_noticed() -> None:
    for one_by_one in (Unlike(), chain(Unlike(), Unlike())):
        _, batched = uploads_of(fed_of(one_by_one))
        _, bare = uploads_of(fed_of(Defence()))
        assert not sent_alike(batched, bare)
    _, mapped = uploads_of(fed_of(Inherited()))
    assert sent_alike(mapped, bare)


@dataclasses.dataclass(frozen=True)
class Unlike(Defence):
    """Does for a cohort what it does for no device."""

    leads: ClassVar[frozenset[str]] = frozenset({"on_upload"})

    def on_upload(self, upload: Message, device: Device) -> Message:
        return map_values(upload, lambda name, value: value + device.keys.value.dim())


@dataclasses.dataclass(frozen=True)
class Inherited(Unlike):
    """Says anew what one device does: the form for a cohort that it inherits is not its own."""

    def on_upload(self, upload: Message, device: Device) -> Message:
        return upload


def sent_alike(ours: Any, theirs: Any) -> bool:
    """Whether all clients sent the same bits; what pads a table is not sent."""
    same = []
    for client, (exchange, place) in ours.items():
        other, there = theirs[client]
        a, b = one(exchange.received.values, place), one(other.received.values, there)
        same.append(encode(a) == encode(b))
    return bool(same) and all(same)


def alike(a: Tensor | Rows, b: Tensor | Rows) -> bool:
    if isinstance(a, Rows) and isinstance(b, Rows):
        a_meant, b_meant = a.row >= 0, b.row >= 0
        return (
            torch.equal(a.row[a_meant], b.row[b_meant]) and largest(a.value[a_meant], b.value[b_meant]) < 1e-9
        )
    return isinstance(a, Tensor) and isinstance(b, Tensor) and largest(a, b) < 1e-9


@pytest.mark.parametrize(
    "protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd")], ids=["weights", "gradients"]
)
@pytest.mark.parametrize("case", PLAIN_FIRST)
def test_private_stays_private(case: Case, protocol: FedAvg) -> None:
    parts = fed_of(case.build()).model.parts.values()
    if protocol.sends_gradients and any(part.helper and part.scope is Scope.SHARED for part in parts):
        with pytest.raises(BadInput, match="stepped by devices"):
            fed_of(case.build(), protocol=protocol)
        return
    if protocol.sends_gradients and getattr(case.build(), "what", "gradients") != "gradients":
        with pytest.raises(BadInput, match=r"^defence\.(what|every): .* but devices send gradients"):
            fed_of(case.build(), protocol=protocol)
        return
    fed = fed_of(case.build(), protocol=protocol)
    private = set(fed.model.names(Scope.PRIVATE))
    state, seen = uploads_of(fed, 2)
    own = held(fed, state)
    for client, (exchange, place) in seen.items():
        data = encode(one(exchange.received.values, place))
        assert private.isdisjoint(exchange.received.values)
        assert all(own[name][client].numpy().tobytes() not in data for name in private)


@pytest.mark.parametrize("case", PLAIN_FIRST)
def test_only_those_who_consent_post(case: Case) -> None:
    fed = fed_of(case.build())
    posts = run(fed, 2).posts
    allowed = torch.stack(list(fed.clients.consents.values())).any(0).flatten().nonzero().squeeze(1)
    assert bool(torch.isin(posts.owner, allowed).all())


def beside(case: Case, other: Case) -> Defence:
    """A defence as it goes with another one: APM wants to be told what a part that is not the model's is."""
    named = {"UCFedRec": "discriminator_gender", "FedAU2": "adversary_gender"}
    told = {"components": {named.get(other.name, ""): "mlp2"}}
    more = told if case.name == "APM" and other.name in named else {}
    return case.entry(**{**case.options, **more})  # type: ignore[no-any-return]


def pair(case: Case, other: Case) -> Any:
    """Other options seldom change how defences go together, nor does which of the two comes first."""
    quick = not (case.varied or other.varied) and case.name <= other.name
    return pytest.param(case, other, id=f"{case}-{other}", marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("case", "other"), [pair(case, other) for case in CASES for other in CASES])
def test_it_chains_with_every_other(case: Case, other: Case) -> None:
    parts = beside(case, other), beside(other, case)
    if len({part.helpers for part in parts if part.acts("helper_loss")}) > 1:
        with pytest.raises(BadInput, match="each at another pace"):
            chain(*parts)
        return
    both = chain(*parts)
    if case.name == other.name and case.name in ONCE:
        with pytest.raises(BadInput, match="once"):
            fed_of(both)
        return
    state = run(fed_of(both, chunk=USERS), 2)
    assert all(value.isfinite().all() for value in state.server.values())
    if case.name == other.name:  # each alone is held to its keys above; twice the same, they must not mix
        assert digest(state) == digest(run(fed_of(both, chunk=USERS), 2))


@pytest.mark.parametrize("case", PLAIN_FIRST)
def test_in_a_chain_with_nothing_it_is_itself(case: Case) -> None:
    """What is drawn may differ, what is sent may not: names, rows, sizes."""
    alone, chained = (uploads_of(fed_of(d))[1] for d in (case.build(), chain(Undefended(), case.build())))
    for client, (exchange, place) in alone.items():
        theirs, there = chained[client]
        ours, same = one(exchange.received.values, place), one(theirs.received.values, there)
        assert ours.keys() == same.keys()
        assert len(encode(ours)) == len(encode(same))


@pytest.mark.parametrize("model", MODELS)
def test_no_defence_changes_nothing(model: str) -> None:
    bare, none = (run(fed_of(d, model, epochs=2), 3) for d in (Defence(), Undefended()))
    assert digest(bare) == digest(none)
    assert not any(Undefended().acts(hook) for hook in HOOKS)


@pytest.mark.parametrize("case", PLAIN_FIRST)
def test_training_gives_a_state_that_works(case: Case) -> None:
    fed = fed_of(case.build(), rounds=2)
    state = fed.run(fed.start())
    assert all(value.isfinite().all() for value in state.server.values())
    assert 0 <= fed.evaluate(state).means()["hr@10"] <= 1
