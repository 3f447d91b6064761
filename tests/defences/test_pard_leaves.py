"""PARD: the model in two halves, and what of it leaves a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.canary_world import ITEMS, USERS, canaries_of, canary_world, spying
from tests.contract import Scene
from tests.forking import Showing
from tests.node.test_device import uploads_agree
from tests.worlds import changed, digest, federation, largest, phones, run, silos, with_scope
from veilrec.base import tensors
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Rows, Scope
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence, HelperSteps, chain
from veilrec.defences.laplace import Laplace
from veilrec.defences.pard import PARD
from veilrec.engine import helper_steps
from veilrec.errors import ClientFailed
from veilrec.interactions import Interactions
from veilrec.model import Device, Recommender, with_classes
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedncf import FedNCF
from veilrec.privacy.disclosure import disclosures
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import encode, one
from veilrec.wire.uploads import Exchange

LOG = canary_world()
MODELS: dict[str, Any] = {"FedNCF": FedNCF, "FedLightGCN": FedLightGCN}
POSTED = {"pard.user", "pard.user_re", "pard.items", "pard.label.gender", "pard.label.age"}


def clients_of(consent: Any = 0.4, log: Interactions = LOG) -> Clients:
    return phones(log, consent)


def fed_of(
    defence: Defence | None = None, clients: Clients | None = None, model: str = "FedNCF", **plan: Any
) -> Federation:
    settings = {"precision": "float64", "lr": 0.5, "batch": 8, "chunk": 17, **plan}
    made = MODELS[model](ITEMS, dim=6)
    return federation(clients or clients_of(), made, None, defence or PARD(head=(8,)), **settings)


def willing(clients: Clients) -> list[int]:
    found: list[int] = torch.stack(list(clients.consents.values())).all(0)[:, 0].nonzero()[:, 0].tolist()
    assert 5 < len(found) < USERS - 5
    return found


# The model


@pytest.mark.parametrize("place", ["phones", "silos"])
@pytest.mark.parametrize("join", ["concatenate", "add"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_for_a_cohort_as_for_one_device(model: str, average: bool, join: Any, place: str) -> None:
    clients = clients_of() if place == "phones" else silos(LOG, 5)
    defence = PARD(join=join, average_user=average, head=(7, 5))
    attached = defence.attach(with_classes(MODELS[model](ITEMS, clients.n_seats, dim=6), clients))
    scene = Scene.of(attached, clients)
    batched = attached.cohort_loss(scene.params, scene.device)
    assert largest(batched, scene.mapped(lambda m, d: m.loss(d))) < 1e-12
    ours = scene.slopes(lambda p: attached.cohort_loss(p, scene.device))
    theirs = scene.slopes(lambda p: scene.mapped(lambda m, d: m.loss(d), p))
    assert ours.keys() == theirs.keys()
    assert all(largest(ours[name], theirs[name]) < 1e-12 for name in ours)


@pytest.mark.parametrize("place", ["phones", "silos"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_scores_of_a_cohort_are_those_of_its_devices(model: str, average: bool, place: str) -> None:
    clients = clients_of() if place == "phones" else silos(LOG, 5)
    defence = PARD(average_user=average, head=(7, 5))
    fed = federation(clients, MODELS[model](ITEMS, clients.n_seats, dim=6), None, defence)
    state = run(fed)
    fast = fed.evaluate(state).means()
    slow = changed(fed, model=_without_batched(fed.model)).evaluate(state).means()
    assert fast == pytest.approx(slow, abs=1e-9)


def _without_batched(model: Recommender) -> Recommender:
    """The same model, scored one device at a time."""
    twin = with_scope(model, "item", Scope.SHARED)
    twin.__class__ = type("Twin", (type(model),), {"cohort_scores": Recommender.cohort_scores})
    return twin


@pytest.mark.parametrize("model", MODELS)
def test_both_vectors_are_mixed_with_the_items_where_the_model_does_so(model: str) -> None:
    clients = clients_of()
    attached = PARD(head=(4,)).attach(with_classes(MODELS[model](ITEMS, dim=6), clients))
    scene = Scene.of(attached, clients)
    found = scene.mapped(lambda m, d: m.scoring_user(d.batch))  # [c, 1, 12]
    open_half = scene.mapped(lambda m, d: m.represent(d.batch))
    for k, history in enumerate(scene.device.batch.history[:, 0].tolist()):
        mean = torch.stack([scene.params["item"][k, i] for i in history if i >= 0]).mean(0)
        halves = [scene.params[name][k, 0] for name in ("user", "user_re")]
        if model == "FedLightGCN":
            halves = [(half + mean) / 2 for half in halves]
        assert largest(found[k, 0], torch.cat(halves)) < 1e-12
        assert largest(open_half[k, 0], halves[0]) < 1e-12


def test_the_score_is_the_perceptron_on_all_three() -> None:
    clients = clients_of()
    attached = PARD(head=(5, 3)).attach(with_classes(FedNCF(ITEMS, dim=6), clients))
    scene = Scene.of(attached, clients)
    scores = scene.mapped(lambda m, d: m.scores(d.batch))  # of the rows of the local table
    own = {name: value[2] for name, value in scene.params.items()}
    x = torch.cat([own["user"][0], own["user_re"][0], own["item"][3]])
    for k in range(3):
        x = torch.relu(x) if k else x
        x = own[f"predictor.{k}.weight"].T @ x + own[f"predictor.{k}.bias"]
    assert largest(scores[2, 0, 3], x[0]) < 1e-12


# What leaves


def seen_of(fed: Federation, rounds: int = 2) -> list[Exchange]:
    seen: list[Exchange] = []
    run(fed, rounds, watch=[seen.append])
    return seen


@pytest.mark.parametrize("model", MODELS)
def test_uploads_are_the_open_vector_and_touched_rows_and_nothing_else(model: str) -> None:
    fed = fed_of(model=model)
    assert set(fed.protocol.schema(fed.model)) == {"user", "item"}
    for exchange in seen_of(fed):
        received = exchange.received
        assert received.values.keys() == {"user", "item"}
        assert isinstance(received.values["item"], Rows)
        for k, client in enumerate(received.cohort.tolist()):
            rows = received.values["item"].row[k]
            touched = LOG.item[LOG.user == client][:-2]
            assert set(touched.tolist()) <= set(rows[rows >= 0].tolist())
            assert int((rows >= 0).sum()) <= len(touched) * 5


def test_posts_are_what_is_announced_of_those_who_consent() -> None:
    clients = clients_of()
    fed, posted = fed_of(clients=clients), set[int]()
    assert set(fed.fleet.announced) == POSTED
    for exchange in seen_of(fed):
        received = exchange.received
        posts, place = received.posts, {client: k for k, client in enumerate(received.cohort.tolist())}
        assert posts.values.keys() == POSTED
        posted |= set(posts.owner.tolist())
        for j, owner in enumerate(posts.owner.tolist()):
            upload = one(received.values, place[owner])
            rows = upload["item"]
            assert isinstance(rows, Rows)
            touched = torch.isin(rows.row, LOG.item[LOG.user == owner][:-2])  # after local training
            assert largest(posts.values["pard.items"][j], rows.value[touched].mean(0)) < 1e-12
            assert torch.equal(posts.values["pard.user"][j], upload["user"][0])
            for name, label in LOG.attributes.items():
                assert int(posts.values[f"pard.label.{name}"][j]) == int(label[owner])
    assert posted == set(willing(clients))


BY_NAME = {"gender": 0.7, "age": 0.4}


def sharing(clients: Clients, *names: str) -> list[int]:
    """Who shares all of some attributes; seats are numbered through."""
    shared = torch.stack([clients.consents[name] for name in names]).all(0).flatten()
    return shared.nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("place", ["phones", "silos"])
def test_who_keeps_one_guarded_attribute_posts_nothing(place: str) -> None:
    """z_u^re carries all that is guarded: a label that is left out would be read off it."""
    split = LOG.leave_one_out()
    clients = Clients.phones(split, consent=BY_NAME)
    if place == "silos":
        clients = Clients.silos(split, 5, consent=BY_NAME)
    both, one_of_them = sharing(clients, "gender", "age"), sharing(clients, "gender")
    assert 5 < len(both) < len(one_of_them) - 5
    made = FedNCF(ITEMS, clients.n_seats, dim=6)
    for defence, owners in ((PARD(), both), (PARD(attributes=("gender",)), one_of_them)):
        fed = federation(clients, made, None, defence, precision="float64", chunk=17)
        posts = run(fed).posts
        assert posts.owner.tolist() == owners
        labels = [value for name, value in posts.values.items() if "label" in name]
        assert all(bool((label >= 0).all()) for label in labels)
    assert "pard.label.age" not in posts.values


def test_nobody_posts_where_one_guarded_attribute_is_shared_by_nobody() -> None:
    clients = Clients.phones(LOG.leave_one_out(), consent={"gender": 1.0, "age": 0.0})
    assert len(run(fed_of(clients=clients)).posts.owner) == 0


@dataclass(frozen=True)
class Silent(Showing):
    """Posts what may tell any attribute."""


@dataclass(frozen=True)
class Asking(Defence):
    """Learns from whoever shares their age, and posts nothing."""

    helpers: ClassVar[HelperSteps] = HelperSteps(taught_by=("age",))


def test_in_a_chain_those_post_who_share_all_that_any_of_its_posts_may_tell() -> None:
    clients = Clients.phones(LOG.leave_one_out(), consent=BY_NAME)
    gender, both = sharing(clients, "gender"), sharing(clients, "gender", "age")
    one_alone = PARD(attributes=("gender",), head=(8,))
    for defence, owners in (
        (chain(one_alone, Laplace(), Asking()), gender),  # these two post nothing, whatever they guard
        (chain(one_alone, Silent()), both),
        (Silent(), both),
    ):
        assert run(fed_of(defence, clients)).posts.owner.tolist() == owners


def test_a_later_post_takes_the_place_of_an_earlier_one() -> None:
    first, second = (run(fed_of(), rounds).posts for rounds in (1, 2))
    assert torch.equal(first.owner, second.owner)
    assert largest(first.values["pard.user_re"], second.values["pard.user_re"]) > 0


def test_posts_are_disclosed() -> None:
    fed = fed_of()
    told_of = disclosures(fed.model, fed.protocol, fed.defence, torch.float64)
    assert {each.name for each in told_of if each.of == "consenting users"} == POSTED
    assert {each.name for each in told_of if each.of == "every client"} == {"", "user", "item"}


def hits_of(fed: Federation, rounds: int = 2) -> list[Any]:
    """What is found in the messages, but for chance: the first letter is older than all that devices did."""
    canaries = canaries_of(LOG)
    with spying(canaries) as spy:
        run(fed, rounds)
    assert canaries.count > 10_000
    chance = {hit.canary for hit in canaries.find(spy.messages["letter 0"])}
    return [hit for hit in canaries.scan(spy.messages) if hit.canary not in chance]


@pytest.mark.parametrize(
    ("model", "precision", "chunk"),
    [
        ("FedNCF", "float64", 17),
        pytest.param("FedLightGCN", "float32", 17, marks=pytest.mark.slow),
        pytest.param("FedNCF", "float32", 1, marks=pytest.mark.slow),
        pytest.param("FedNCF", "float32", 17, marks=pytest.mark.slow),
        pytest.param("FedLightGCN", "float64", 17, marks=pytest.mark.slow),
        pytest.param("FedLightGCN", "float32", 1, marks=pytest.mark.slow),  # no slice of what others hold
    ],
)
def test_no_byte_of_what_stays_is_in_any_message(model: str, precision: Any, chunk: int) -> None:
    """But for z_u^re of those who post it, in their posts, and in what the server sends of these."""
    clients = clients_of()
    plan = {"model": model, "precision": precision, "chunk": chunk, "cohort": 0.3 if chunk == 1 else 1.0}
    hits = hits_of(fed_of(clients=clients, **plan))
    assert {hit.canary.split()[0] for hit in hits} == {"user_re"}
    assert {hit.place.split()[0] for hit in hits} == {"post", "letter"}
    posted = {int(hit.place.split(" of ")[1]) for hit in hits if hit.place.startswith("post")}
    assert posted <= set(willing(clients))
    assert len(posted) > 2
    assert hits_of(fed_of(clients=clients_of(0.0), **plan), 1) == []


@dataclass(frozen=True)
class SideBySide(FedAvg):
    """Packs the open half as a slice of a storage that holds the other half and an estimator besides."""

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        width = trained["user"].shape[1]
        private = [trained["user_re"], trained["estimators.ip.weight"].reshape(1, -1)]
        whole = torch.cat([trained["user"], *private], 1)
        return {**super().pack(model, device, trained, gradient), "user": whole[:, :width]}


def test_a_slice_of_storage_with_private_bytes_leaves_without_them() -> None:
    fed = changed(fed_of(clients=clients_of(0.0)), protocol=SideBySide())
    for exchange in seen_of(fed, 1):
        user = exchange.received.values["user"]
        assert isinstance(user, torch.Tensor)
        assert user.untyped_storage().nbytes() > 4 * user.numel() * user.element_size()
    assert hits_of(fed, 1) == []


@pytest.mark.parametrize("lies", ["in a row", "in columns", "turned"])
def test_what_lies_beside_a_view_is_neither_sent_nor_written(lies: str, tmp_path: Path) -> None:
    whole = Keys.seed(3).normal(8, 8, dtype=torch.float64)
    views = {"in a row": whole[2:4], "in columns": whole[:, 2:4], "turned": whole.T[2:4]}
    masks = {name: torch.zeros(8, 8, dtype=torch.bool) for name in views}
    masks["in a row"][2:4], masks["in columns"][:, 2:4], masks["turned"][:, 2:4] = True, True, True
    sent = encode({"user": views[lies]})
    tensors.write(tmp_path / "model.safetensors", {"user": views[lies]})
    for data in (sent, (tmp_path / "model.safetensors").read_bytes()):
        there = [value.numpy().tobytes() in data for value in whole.flatten()]
        assert there == masks[lies].flatten().tolist()


@dataclass(frozen=True)
class Smuggling(PARD):
    """Hides a private weight in the first rows of the item table."""

    what: str = "user_re"

    def after_epoch(self, params: Params, device: Device) -> Params:
        flat = params[self.what].flatten()[: params["item"].shape[1]]
        row = torch.arange(len(params["item"]))[:, None] == 0
        return {**params, "item": torch.where(row, flat, params["item"])}


@pytest.mark.parametrize(
    "what",
    [
        "user_re",
        "estimators.ir.1.weight",
        pytest.param("predictor.0.weight", marks=pytest.mark.slow),
        pytest.param("estimators.fp.0.weight", marks=pytest.mark.slow),
    ],
)
def test_planted_a_private_weight_in_an_upload_is_found(what: str) -> None:
    hits = hits_of(fed_of(Smuggling(head=(8,), what=what), clients_of(0.0)), 1)
    assert {hit.canary.split()[0] for hit in hits} == {what}
    assert {hit.place.split(" of ")[1] for hit in hits} == {f"client {k}" for k in range(USERS)}


@dataclass(frozen=True)
class Generous(PARD):
    """Posts its predictor as well."""

    def _post(self, model: Recommender, device: Device) -> Params:
        head = dict(model.named_parameters())["predictor.1.bias"]
        return {**super()._post(model, device), "pard.head": head[None].expand(1, -1)}


def test_planted_a_post_beyond_what_is_announced_is_refused() -> None:
    with pytest.raises(ClientFailed, match=r"post: undeclared part 'pard.head'"):
        run(fed_of(Generous(head=(8,))))


@dataclass(frozen=True)
class Sharing(PARD):
    """Lets the server average the estimators."""

    def attach(self, model: Recommender) -> Recommender:
        return with_scope(super().attach(model), "estimators", Scope.SHARED)


def test_planted_estimators_that_are_shared_are_noticed() -> None:
    told_by = [set(fed.protocol.schema(fed.model)) for fed in (fed_of(Sharing()), fed_of())]
    assert any(name.startswith("estimators") for name in told_by[0])
    assert told_by[1] == {"user", "item"}


# Labels


def changed_by(who: int, consent: float, rounds: int = 1) -> set[str]:
    """The messages that change when one user has other labels."""
    other = {name: label.clone() for name, label in LOG.attributes.items()}
    other["gender"][who] = 1 - other["gender"][who]
    other["age"][who] = (other["age"][who] + 1) % 3
    found: list[dict[str, bytes]] = []
    for log in (LOG, replace(LOG, attributes=other)):
        sent: dict[str, bytes] = {}
        for exchange in seen_of(fed_of(clients=clients_of(consent, log)), rounds):
            received = exchange.received
            for k, client in enumerate(received.cohort.tolist()):
                sent[f"{exchange.round}: {client}"] = encode(one(received.values, k))
            for k, owner in enumerate(received.posts.owner.tolist()):
                post: Message = {name: value[k] for name, value in received.posts.values.items()}
                sent[f"{exchange.round}: post of {owner}"] = encode(post)
        found.append(sent)
    return {name for name in found[0] if found[0][name] != found[1][name]}


def test_a_label_that_is_kept_changes_its_users_own_upload_and_no_other() -> None:
    keeps = next(k for k in range(USERS) if k not in willing(clients_of()))
    assert changed_by(keeps, 0.4) == {f"1: {keeps}"}


def test_a_label_that_is_shared_is_posted() -> None:
    shares = willing(clients_of())[0]
    assert changed_by(shares, 0.4) == {f"1: {shares}", f"1: post of {shares}"}
    assert len(changed_by(shares, 0.4, rounds=2)) > USERS  # everybody's estimators have read the post


def test_a_part_that_another_defence_attached_stays() -> None:
    wrapped = with_classes(FedNCF(ITEMS, dim=6), clients_of())
    wrapped.diary = torch.nn.Parameter(torch.zeros(5))
    wrapped.parts = {**wrapped.parts, "diary": replace(wrapped.parts["mlp1"], scope=Scope.PRIVATE)}
    attached = PARD().attach(wrapped)
    assert "diary" in attached.parts
    assert attached.get_parameter("diary").shape == (5,)
    assert "mlp1" not in attached.parts


def test_a_device_alone_uploads_the_same(tmp_path: Path) -> None:
    """It knows how many classes there are, and D_pub from what the server sends."""
    sets = ["model.name='FedNCF'", "model.dim=8", "plan.precision='float64'"]
    uploads_agree([*sets, "defence=[{name = 'pard', head = [8]}]"], tmp_path, "--seeded")


def test_large_estimators_make_small_chunks() -> None:
    fed = changed(fed_of(), plan=Plan())
    held_by_all = sum(fed.model.get_parameter(n).numel() for n in fed.model.names() if "estimators" in n)
    assert helper_steps.size(fed.model) == 5 * held_by_all
    wide = changed(fed, model=PARD().attach(with_classes(FedNCF(ITEMS, dim=128), fed.clients)))
    assert max(map(len, fed.fleet.chunks(torch.arange(USERS)))) == USERS
    assert max(map(len, wide.fleet.chunks(torch.arange(USERS)))) < USERS


def test_same_seed_same_bits() -> None:
    states = [run(fed_of(workers=workers, chunk=chunk), 2) for workers, chunk in ((1, 7), (2, 7))]
    assert digest(states[0]) == digest(states[1])
    assert digest(run(changed(fed_of(), keys=Keys.seed(1)), 2)) != digest(states[0])
