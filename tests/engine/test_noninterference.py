"""What is private changes no byte that leaves: labels, other people's weights, weights that no loss reads.

A label is a small number that stands everywhere, so that no search can find it; but where nothing that leaves
depends on it, nothing that leaves can tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.contract import Case, cases
from tests.hooks import Attached, Classifying, Open, part
from tests.worlds import begin, federation, log_of, phones, resume
from veilrec.base.keys import Keys
from veilrec.base.params import Part, Scope
from veilrec.clients import Clients
from veilrec.defence import Defence, chain
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.model import Recommender, with_part
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.rounds import Federation
from veilrec.wire.codec import encode, one
from veilrec.wire.uploads import Exchange

USERS, ITEMS = 9, 16
READS_LABELS: dict[str, set[str]] = {  # defences that use a label by design, and the parts that it may change
    "PARD": {"user", "item"},
    "FedAU2": {"user", "item", "adversary_gender"},  # which is trained on the own label
}
MODELS: dict[str, Callable[[], Recommender]] = {
    "FedMF": lambda: FedMF(ITEMS, dim=3),
    "FedNCF": lambda: FedNCF(ITEMS, dim=3, head=(4,), sharing="private"),
}


def world(seed: int, users: int = USERS) -> Interactions:
    """Some users with a few events each, and labels of two attributes."""
    keys = Keys.seed(seed)
    events = [
        (user, item, time)
        for user in range(users)
        for time, item in enumerate(keys.fold(user).order(ITEMS)[: 3 + (seed + 3 * user) % 5].tolist())
    ]
    labels = {
        "gender": keys.fold("gender").integers(2, users),
        "age": keys.fold("age").integers(4, users) - 1,
    }
    classes = {name: ["a", "b", "c", "d"] for name in labels}  # how many there are is no secret
    return log_of(*events, users=users, items=ITEMS, attributes=labels, classes=classes)


def fed_of(clients: Clients, model: str = "FedMF", **rest: Any) -> Federation:
    settings = {"lr": 0.5, "batch": 4, "chunk": 4, **rest}
    parts = [settings.pop(name, None) for name in ("protocol", "defence")]
    return federation(clients, MODELS[model](), *parts, **settings)


def leaving(fed: Federation, devices: dict[str, Tensor] | None = None, rounds: int = 2) -> dict[str, bytes]:
    """Every upload and post of some rounds as bytes, from the weights given, or from fresh ones."""
    state, sent = fed.start(), dict[str, bytes]()
    if devices is not None:
        fed.fleet.devices.put(torch.arange(len(fed.clients)), devices)

    def watch(exchange: Exchange) -> None:
        received = exchange.received
        for k, client in enumerate(received.cohort.tolist()):
            sent[f"{exchange.round}: {client}"] = encode(one(received.values, k))
        for k, owner in enumerate(received.posts.owner.tolist()):
            post = {name: value[k] for name, value in received.posts.values.items()}
            sent[f"{exchange.round}: post of {owner}"] = encode(dict(post))

    resume(fed, state, rounds, watch=[watch])
    assert sum("post" not in name for name in sent) == rounds * len(fed.clients)
    return sent


def relabelled(log: Interactions, seed: int, spared: Tensor | None = None) -> Interactions:
    """Other labels for everybody, but for those who are spared, and each of them another than before."""
    keys, labels = Keys.seed(seed).fold("other"), {}
    for name, label in log.attributes.items():
        other = (label + 2 + keys.fold(name).integers(3, len(label))) % 5 - 1  # -1 … 3; never the same
        labels[name] = other if spared is None else torch.where(spared, label, other)
    return replace(log, attributes=labels)


DEFENCES = [case for case in cases("defences") if case.name not in READS_LABELS]


def fits(protocol: Case, defence: Case, model: str = "FedMF") -> bool:
    """Whether noise is meant for what the protocol sends, and for parts of the model that leave a device."""
    try:
        defence.build().declares(MODELS[model](), protocol.build())
    except BadInput:
        return False
    return True


PLAIN = {kind: [case for case in cases(kind) if not case.options] for kind in ("protocols", "defences")}
PAIRS = [(p, next(d for d in PLAIN["defences"] if fits(p, d))) for p in cases("protocols")] + [
    (PLAIN["protocols"][0], d) for d in DEFENCES if fits(PLAIN["protocols"][0], d)
]


@pytest.mark.parametrize(("protocol", "defence"), PAIRS, ids=str)
def test_labels_change_no_byte_of_any_method(protocol: Case, defence: Case) -> None:
    """Every protocol and every defence; the random cases below try them together."""
    log = world(1)
    parts = {"protocol": protocol.build(), "defence": defence.build()}
    assert leaving(fed_of(phones(log), **parts)) == leaving(fed_of(phones(relabelled(log, 2)), **parts))


def labels_change_nothing(seed: int, model: str, defence: Case, protocol: Case, consent: float) -> None:
    log = world(seed)
    clients = phones(log, consent)
    willing = clients.consents["gender"][:, 0]  # one draw decides for all attributes
    parts = {"protocol": protocol.build(), "defence": chain(defence.build(), Open())}
    trained = {"UCFedRec"}  # by devices, which under a protocol of gradients step nothing that is shared
    assume(not (parts["protocol"].sends_gradients and defence.name in trained))
    assume(fits(protocol, defence, model))
    other = phones(relabelled(log, seed + 1, spared=willing), consent)
    assert leaving(fed_of(clients, model, **parts), rounds=1) == leaving(
        fed_of(other, model, **parts), rounds=1
    )


random_cases = given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(DEFENCES),
    st.sampled_from(cases("protocols")),
    st.sampled_from([0.0, 0.4]),
)


@settings(max_examples=12)
@random_cases
def test_labels_of_those_who_keep_them_change_no_byte(
    seed: int, model: str, defence: Any, protocol: Any, consent: float
) -> None:
    labels_change_nothing(seed, model, defence, protocol, consent)


@pytest.mark.slow
@settings(max_examples=1000)
@random_cases
def test_labels_of_those_who_keep_them_change_no_byte_in_a_thousand_cases(
    seed: int, model: str, defence: Any, protocol: Any, consent: float
) -> None:
    labels_change_nothing(seed, model, defence, protocol, consent)


@pytest.mark.parametrize("defence", [Attached(), Classifying()], ids=["penalty", "classifier"])
def test_planted_a_defence_that_uses_labels_is_noticed(defence: Defence) -> None:
    log = world(1)
    turned = replace(log, attributes={**log.attributes, "gender": 1 - log.attributes["gender"]})
    sent, other = (leaving(fed_of(phones(each), defence=defence), rounds=1) for each in (log, turned))
    assert all(sent[name] != other[name] for name in sent)


def test_planted_a_post_of_a_label_is_noticed() -> None:
    log = world(1)
    sent, other = (leaving(fed_of(phones(each, 0.5), defence=Open())) for each in (log, relabelled(log, 2)))
    changed = {name for name in sent if sent[name] != other[name]}
    assert changed
    assert all("post" in name for name in changed)


@dataclass(frozen=True)
class Diary(Defence):
    """A private part that no loss reads, unless it is told to."""

    read: float = 0.0

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, "diary", nn.Parameter(torch.zeros(5)), Part(Scope.PRIVATE))

    def penalty(self, model: Recommender, device: Any) -> Tensor:
        if not self.read:
            return torch.zeros(())
        return self.read * part(model, "diary").sum() * model.represent(device.batch).sum()


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from(sorted(MODELS)), st.sampled_from(cases("protocols")))
def test_weights_that_no_loss_reads_change_no_byte(seed: int, model: str, protocol: Any) -> None:
    fed = fed_of(phones(world(seed)), model, protocol=protocol.build(), defence=Diary())
    own = begin(fed).devices.get(torch.arange(USERS))
    other = {**own, "diary": Keys.seed(seed).normal(USERS, 5)}
    assert leaving(fed, own) == leaving(fed, other)


def test_planted_weights_that_a_loss_reads_are_noticed() -> None:
    fed = fed_of(phones(world(3)), defence=Diary(read=1.0))
    own = begin(fed).devices.get(torch.arange(USERS))
    assert leaving(fed, own) != leaving(fed, {**own, "diary": Keys.seed(3).normal(USERS, 5)})


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.integers(0, USERS - 1), st.sampled_from(sorted(MODELS)))
def test_what_one_device_holds_changes_no_byte_of_another_in_its_round(
    seed: int, who: int, model: str
) -> None:
    fed = fed_of(phones(world(seed)), model)
    own = begin(fed).devices.get(torch.arange(USERS))
    other = {name: value.clone() for name, value in own.items()}
    other["user"][who] += 1.0
    sent, changed = (leaving(fed, devices, rounds=1) for devices in (own, other))
    assert {name for name in sent if sent[name] != changed[name]} == {f"1: {who}"}


def test_titles_ratings_and_moments_change_no_byte() -> None:
    log = world(4)
    assert log.time is not None
    other = replace(
        log,
        time=log.time * 1000 + 7,
        rating=Keys.seed(1).uniform(len(log)),
        texts=[f"title {k}" for k in range(ITEMS)],
        item_ids=[f"other {k}" for k in range(ITEMS)],
    )
    assert leaving(fed_of(phones(log))) == leaving(fed_of(phones(other)))
