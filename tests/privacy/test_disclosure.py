"""What a device tells the server is listed, and the list is true."""

from __future__ import annotations

import json

import pytest
import torch

from tests.contract import Case, cases, plain_first
from tests.hooks import Open, fed_of
from tests.worlds import changed, checkerboard, federation, phones, silos, uploads_of
from veilrec.base.params import Rows, Scope
from veilrec.defence import Defence, chain
from veilrec.defences.laplace import Laplace
from veilrec.defences.none import Undefended
from veilrec.errors import BadInput
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.privacy.disclosure import Disclosure, disclosures
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import one

GRADIENTS = FedAvg(sends="gradients", server="sgd")
BLURRED = Laplace(what="change", rows="all")


def listed(fed: Federation) -> dict[str, Disclosure]:
    found = disclosures(fed.model, fed.protocol, fed.defence, fed.plan.dtype)
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


@pytest.mark.parametrize(("model", "protocol"), plain_first(cases("models"), cases("protocols"), varied=1))
def test_everything_declared_is_listed_and_nothing_else(model: Case, protocol: Case) -> None:
    for make in cases("defences"):
        try:
            built = make.build().attach(model.build(24, 1))
            found = disclosures(built, protocol.build(), make.build(), torch.float64)
        except BadInput:
            continue  # this defence is not for what this model or protocol sends, and says so elsewhere
        schema = protocol.build().schema(built, torch.float64)
        assert [each.name for each in found if each.of == "every client"] == ["", *schema]
        for each in found[1:]:
            assert each.says.endswith(".")
            assert each.name in each.says or each.kind == "count"
            if each.name in schema:
                assert (each.shape, each.table) == (schema[each.name].shape, schema[each.name].table)
        assert not {each.name for each in found} & set(built.names(Scope.PRIVATE))


def test_it_is_plain_enough_for_a_result() -> None:
    fed = fed_of(chain(Open(), BLURRED), protocol=FedAvg(weigh="examples"))
    told = [each.told() for each in listed(fed).values()]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert {entry["kind"] for entry in told} == {"message", "count", "rows", "post"}


def test_a_table_by_hand() -> None:
    model = FedNCF(24, dim=4, head=(6,), user="exposed")
    told = listed(federation(phones(checkerboard()), model))
    counted = listed(federation(phones(checkerboard()), model, FedAvg(weigh="examples")))
    assert counted.keys() - told.keys() == {"examples"}
    assert counted["examples"] == Disclosure(
        "examples",
        "count",
        "How many events the client trains on: those of its users, without what is held out.",
        dtype="int32",
    )
    item, user, layer = told["item"], told["user"], told["mlp1.weight"]
    assert (item.kind, item.scope, item.shape, item.table, item.numbers) == (
        "rows",
        "shared",
        (4,),
        24,
        "touched",
    )
    assert "the items that its users touched, among untouched ones that were drawn" in item.says
    assert (user.kind, user.scope, user.shape, user.numbers) == ("values", "exposed", (1, 4), "")
    assert "own user (1×4)" in user.says
    assert (layer.kind, layer.scope, layer.shape) == ("values", "shared", (8, 6))
    assert "length of its message" in told[""].says


@pytest.mark.parametrize(
    ("defence", "numbers"), [(Undefended(), "touched"), (Laplace(what="change"), "touched"), (BLURRED, "all")]
)
def test_what_it_says_of_row_numbers_is_what_happens(defence: Defence, numbers: str) -> None:
    fed = fed_of(defence, negatives=1)
    assert listed(fed)["item"].numbers == numbers
    assert ("length" in listed(fed)[""].says) == (numbers == "touched")
    log = fed.clients.log
    lengths = set()
    for client, (exchange, place) in uploads_of(fed)[1].items():
        upload = one(exchange.received.values, place)["item"]
        assert isinstance(upload, Rows)
        rows = set(upload.row[upload.row >= 0].tolist())
        touched = set(log.item[log.user == client].tolist())
        assert touched <= rows
        assert rows == set(range(24)) if numbers == "all" else len(rows) <= 2 * len(touched)
        lengths.add(len(rows))
    assert (len(lengths) == 1) == (numbers == "all")


def test_noise_is_named_where_it_is_declared() -> None:
    fed = federation(phones(checkerboard()), FedNCF(24, dim=4, head=(6,)), None, Laplace(parts=("item",)))
    told = listed(fed)
    assert told["item"].blurred == ("laplace",)
    assert told["item"].says.endswith("blurred by laplace.")
    assert told["mlp1.weight"].blurred == ()
    both = chain(Laplace(parts=("item",)), Laplace(parts=("item",)))
    assert listed(changed(fed, defence=both))["item"].blurred == ("laplace",)


def test_gradients_are_called_gradients() -> None:
    assert "gradient" in listed(fed_of(protocol=GRADIENTS))["item"].says
    assert "gradient" not in listed(fed_of())["item"].says


def test_posts_are_those_of_consenting_users() -> None:
    told = listed(fed_of(Open()))
    assert {name: each.of for name, each in told.items() if each.kind == "post"} == {
        "vector": "consenting users",
        "label": "consenting users",
    }
    assert (told["label"].dtype, told["label"].shape) == ("int64", ())
    assert "those who consent" in told["vector"].says


def test_a_silo_tells_of_all_its_users_at_once() -> None:
    clients = silos(checkerboard(), 4)
    fed = federation(clients, FedMF(24, clients.n_seats, dim=4, user="exposed"))
    assert listed(fed)["user"].shape == (6, 4)


def test_a_defence_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match=r"defence\.what"):
        listed(fed_of(BLURRED, protocol=GRADIENTS))
