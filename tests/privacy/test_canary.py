"""No undeclared private value leaves: neither in a message nor in a file, a log or an error.

Private values are planted as patterns that nothing else has; whatever leaves is searched for them. What each
method does disclose stands in `veilrec.privacy.disclosure`. Each search is shown a leak that it must find.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.canary import Canaries, numeral
from tests.canary_world import ITEMS, USERS, canaries_of, canary_world, older, spying
from tests.contract import Case, cases, plain_first
from tests.hooks import Open
from tests.worlds import federation, phones, run, silos
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Rows
from veilrec.clients import Clients
from veilrec.defence import Defence, Posting
from veilrec.engine import outgoing
from veilrec.engine.local import LocalTask
from veilrec.errors import BadInput, ClientFailed
from veilrec.examples import Portion
from veilrec.model import Device, Recommender
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.uploads import Posts

LOG = canary_world()
VECTORS = Keys.seed(1).normal(50, 12, dtype=torch.float64) * 0.01
NOISE = (Keys.seed(2).normal(40_000, dtype=torch.float64) * 0.01).numpy().tobytes()
FORMS: dict[str, Callable[[Any], bytes]] = {
    "float64": lambda u: u[5:6].tobytes(),
    "float64, turned": lambda u: u[5:6].byteswap().tobytes(),
    "float32": lambda u: u.astype("<f4").tobytes(),
    "float32, turned": lambda u: u.astype(">f4").tobytes(),
    "float32 in float64": lambda u: u[5:6].astype("f4").astype("f8").tobytes(),
    "float16": lambda u: u.astype("<f2").tobytes(),
    "float16, turned": lambda u: u.astype(">f2").tobytes(),
    "float16 in float32": lambda u: u.astype("f2").astype("<f4").tobytes(),
    "bfloat16": lambda u: torch.from_numpy(u).bfloat16().view(torch.int16).numpy().tobytes(),
    "hex": lambda u: b"0x7" + u.astype("<f4").tobytes().hex().encode(),
    "capital hex of one": lambda u: u[5:6].tobytes().hex().upper().encode(),
    "base64": lambda u: b"data:" + base64.b64encode(u.astype("<f2").tobytes()),
    "base64 of one": lambda u: b"x" + base64.urlsafe_b64encode(u[5:6].tobytes()),
    "a list": lambda u: json.dumps(u.tolist()).encode(),
    "one number": lambda u: json.dumps({"norm": u[5]}).encode(),
    "a printed tensor": lambda u: str(torch.from_numpy(u)).encode(),
    "four digits each": lambda u: " ".join(f"{x:.3e}" for x in u).encode(),
}


BASE = canaries_of(LOG)


def planted() -> Canaries:
    found = BASE.copy()
    found.numbers("vector", VECTORS)
    return found


CANARIES = planted()


@pytest.mark.parametrize("form", FORMS)
def test_a_private_vector_is_found_in_every_form(form: str) -> None:
    leak = FORMS[form](VECTORS[7].numpy())
    for data in (leak, NOISE[:1003] + leak + NOISE[1003:2006]):
        if data != leak and form in ("a list", "one number", "a printed tensor", "four digits each"):
            data = f'{{"seed": 17, "leak": "{leak.decode()}"}}'.encode()
        hits = CANARIES.find(data)
        assert hits
        assert {hit.canary for hit in hits} == {"vector of 7"}


@pytest.mark.parametrize("kind", ["<i2", ">i4", "<i8", "<f4", ">f8"])
def test_a_history_is_found_in_the_order_of_time_only(kind: str) -> None:
    items = LOG.item[LOG.user == 4].numpy()
    (hit, *_) = CANARIES.find(NOISE[:501] + items.astype(kind).tobytes())
    assert hit.canary == "history of 4"
    assert CANARIES.find(NOISE[:501] + np.sort(items).astype(kind).tobytes()) == []
    assert CANARIES.find(json.dumps(items.tolist()).encode())[0].canary == "history of 4"


@pytest.mark.parametrize("k", range(0, USERS, 7))
def test_ids_titles_times_and_ratings_are_found(k: int) -> None:
    assert LOG.texts is not None
    assert LOG.time is not None
    assert LOG.rating is not None
    leaks = [LOG.user_ids[k], LOG.item_ids[k][2:13], LOG.texts[k], str(LOG.time[k].item())]
    leaks += [base64.b64encode(LOG.user_ids[k].encode()).decode(), LOG.user_ids[k].encode().hex()]
    leaks += [str(LOG.rating[k : k + 4].tolist())]
    for leak in leaks:
        assert CANARIES.find(f"round 3: {leak}, loss 0.69".encode()), leak
    assert CANARIES.find(LOG.time[k].numpy().tobytes())


def test_nothing_is_found_where_nothing_is() -> None:
    other = Keys.seed(9).normal(30_000, dtype=torch.float64) * 0.01
    numbers = json.dumps({"a": other[:5000].tolist(), "b": [round(x, 4) for x in other[:2000].tolist()]})
    documents = {"noise": NOISE, "single": other.float().numpy().tobytes(), "numbers": numbers.encode()}
    documents |= {"rows": torch.arange(ITEMS, dtype=torch.int32).numpy().tobytes(), "zeros": bytes(4096)}
    documents |= {"source": Path(__file__).read_bytes()}
    assert CANARIES.scan(documents) == []


@pytest.mark.parametrize(
    ("text", "value", "give"), [("12", 12, 0.5), ("-0.30", -0.3, 0.005), ("1.5e-3", 0.0015, 5e-5)]
)
def test_how_exact_a_printed_number_is(text: str, value: float, give: float) -> None:
    assert numeral(text) == pytest.approx((value, give), rel=1e-3)


def fed_of(
    protocol: Any = None, defence: Any = None, model: Any = None, clients: Any = None, **plan: Any
) -> Federation:
    settings = {"precision": "float64", "lr": 0.5, "batch": 8, "chunk": USERS, "optimiser": "adam", **plan}
    clients = clients or phones(LOG)
    model = model or FedNCF(ITEMS, clients.n_seats, dim=6, head=(8,))
    return federation(clients, model, protocol, defence, **settings)


def search(fed: Federation, rounds: int = 2, spares: Any = ()) -> tuple[Canaries, list[Any]]:
    """Some rounds, and what is found in their messages, but for chance."""
    canaries = BASE.copy()
    with spying(canaries, spares) as spy:
        run(fed, rounds)
    assert len(spy.messages) > rounds * len(fed.clients)
    return canaries, [hit for hit in canaries.scan(spy.messages) if not older(hit, spy.messages)]


PLAIN, *OTHERS = cases("protocols")
GRADIENTS = [case for case in OTHERS if case.options.get("sends") == "gradients"]
REST = [case for case in OTHERS if case not in GRADIENTS]  # they differ in what the server does


@pytest.mark.parametrize(
    ("protocol", "defence"),
    [
        *plain_first([PLAIN], cases("defences")),
        *plain_first(GRADIENTS, cases("defences")),
        *plain_first(REST, cases("defences")),
    ],
)
def test_no_message_of_any_method_holds_a_canary(protocol: Case, defence: Case) -> None:
    try:
        fed = fed_of(protocol.build(), defence.build())
    except BadInput as refused:
        pytest.skip(f"they do not go together: {refused}")
    canaries, hits = search(fed, 1)
    assert canaries.count > 2500
    assert hits == []


@pytest.mark.parametrize("model", plain_first(cases("models")))
def test_no_message_of_any_model_holds_a_canary(model: Case) -> None:
    assert search(fed_of(model=model.build(ITEMS, 1)))[1] == []


def test_nor_in_single_precision_nor_from_silos() -> None:
    assert search(fed_of(precision="float32", optimiser="sgd"))[1] == []
    assert search(fed_of(clients=silos(LOG, 5), chunk=2))[1] == []


def test_ten_thousand_canaries() -> None:
    fed = fed_of(model=FedNCF(ITEMS, dim=16, head=(8,), sharing="private"))
    canaries, hits = search(fed, 1)
    assert canaries.count > 10_000
    assert hits == []


@dataclass(frozen=True)
class Smuggle(Defence):
    """Hides the user vector in the first row of the item table, which the schema allows."""

    times: float = 1.0
    rounded: bool = False

    def after_epoch(self, params: Params, device: Device) -> Params:
        vector = params["user"][0].half().to(params["user"].dtype) if self.rounded else params["user"][0]
        row = torch.arange(len(params["item"]))[:, None] == 0
        return {**params, "item": torch.where(row, self.times * vector, params["item"])}


@dataclass(frozen=True)
class Adding(Defence):
    """Sends something under a name of its own."""

    def on_upload(self, upload: Message, device: Device) -> Message:
        return {**upload, "gender": device.batch.attributes["gender"].float()}


@dataclass(frozen=True)
class Leaky(FedAvg):
    """Sends the user's vector, in single precision, in the place of a bias."""

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        message = super().pack(model, device, trained, gradient)
        bias, vector = trained["mlp1.bias"], trained["user"][0].float().to(trained["user"].dtype)
        return {**message, "mlp1.bias": torch.cat([vector, bias[len(vector) :]])}


@pytest.mark.parametrize(
    ("protocol", "defence"),
    [(None, Smuggle()), (None, Smuggle(rounded=True)), (Leaky(), None)],
    ids=["float64", "half", "single"],
)
def test_planted_a_vector_under_a_declared_name_passes_the_schema_and_is_found(
    protocol: Any, defence: Any
) -> None:
    fed = fed_of(protocol, defence, optimiser="sgd")
    _, hits = search(fed, 1)
    assert {hit.place.split(" of ")[1] for hit in hits} == {f"client {k}" for k in range(USERS)}
    assert all(hit.canary.startswith("user (message") for hit in hits)


def test_planted_a_name_that_is_not_declared_is_refused() -> None:
    with pytest.raises(ClientFailed, match="upload: undeclared part 'gender'"):
        run(fed_of(defence=Adding()))


def consenting(clients: Clients) -> list[int]:
    willing: list[int] = (
        torch.stack(list(clients.consents.values())).any(0)[:, 0].nonzero().squeeze(1).tolist()
    )
    assert 5 < len(willing) < USERS - 5
    return willing


def test_only_consenting_users_posts_hold_what_they_post() -> None:
    clients = phones(LOG, 0.5)
    willing = consenting(clients)
    fed = fed_of(defence=Open(), clients=clients, optimiser="sgd")
    assert search(fed, spares=willing)[1] == []
    _, hits = search(fed)  # without sparing them, theirs are found, and nobody else's
    posted = {int(hit.place.split(" of ")[1]) for hit in hits if hit.place.startswith("post")}
    assert posted == set(willing)
    assert {hit.place.split()[0] for hit in hits} == {"post", "letter"}  # the server sends posts to everyone


def test_planted_a_post_without_consent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, post = phones(LOG, 0.5), outgoing._posts

    def everybody(task: LocalTask, posting: Posting, portion: Portion, *rest: Any) -> Posts:
        given = {name: torch.ones_like(consent) for name, consent in portion.known.consents.items()}
        return post(task, posting, replace(portion, known=portion.known._replace(consents=given)), *rest)

    monkeypatch.setattr(outgoing, "_posts", everybody)
    willing = consenting(clients)
    _, hits = search(fed_of(defence=Open(), clients=clients, optimiser="sgd"), 1, willing)
    assert {int(hit.place.split(" of ")[1]) for hit in hits} == set(range(USERS)) - set(willing)


def test_an_error_names_its_client_and_nothing_else_that_is_private() -> None:
    @dataclass(frozen=True)
    class Failing(Defence):
        def on_upload(self, upload: Message, device: Device) -> Message:
            rows = upload["item"]
            assert isinstance(rows, Rows)
            return {**upload, "item": Rows(rows.row, rows.value / 0)}

    canaries = BASE.copy()
    with spying(canaries), pytest.raises(ClientFailed) as failure:
        run(fed_of(defence=Failing()))
    text = str(failure.value).replace(failure.value.user, "somebody")
    assert failure.value.user in LOG.user_ids
    assert "somebody, round 1, upload" in text
    assert canaries.find(text.encode()) == []
