"""An audit says what its own input would have it find: copies of people, ids, constants, and the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from veilrec.attack import Public, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.keys import Keys
from veilrec.interactions import id_hashes
from veilrec.lab.lab import audit
from veilrec.lab.soundness.columns import answers_in, constant, counting, places_of
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.models.fedncf import FedNCF
from veilrec.wire.codec import Spec
from veilrec.wire.uploads import Exchange, Letter, Uploads

QUICK = Threat(resamples=100, permutations=199, by_part=False, membership=False)
USERS = 300
KEYS = Keys.seed(11)
LABEL = KEYS.fold("label").integers(2, USERS)
THREE = KEYS.fold("three").integers(3, USERS)
YEARS = (40 + 10 * KEYS.fold("years").normal(USERS)).double()
PLACES = places_of([f"{7 + 3 * k}" for k in range(USERS)])


def noise(width: int, users: int = USERS) -> Tensor:
    return KEYS.fold("noise").fold(width).normal(users, width)


def people(**labels: Tensor) -> People:
    tags = id_hashes([f"user {k}" for k in range(USERS)])
    classes = {name: ["a", "b", "c"][: int(label.max()) + 1] for name, label in labels.items()}
    return People(labels, tags, classes, places=PLACES)


def audited(
    rows: Tensor, who: People, *classifiers: str, columns: tuple[str, ...] = (), known: float = 0.2
) -> dict[str, Any]:
    attacks = {"": AttributeInference("embeddings", classifiers=classifiers or ("logistic",))}
    return audit(Seen.of_vectors(rows, columns), who, replace(QUICK, known=known), attacks)


def sentences(found: dict[str, Any]) -> str:
    return "\n".join(one["sentence"] for one in found["soundness"])


# Copies


def doubled() -> Tensor:
    """Noise in which 120 users are there twice, with one label: whoever looks for neighbours finds theirs."""
    rows = noise(12)
    rows[120:240] = rows[:120] + 1e-3 * KEYS.fold("off").normal(120, 12)
    rows[200:240] = rows[80:120]
    return rows


def test_a_verdict_that_rests_on_copies_is_given_without_them_too() -> None:
    label = LABEL.clone()
    label[120:240] = label[:120]
    found = audited(doubled(), people(gender=label), "knn", "logistic", known=0.5)
    entry = found["attributes"]["gender"]
    assert (entry["verdict"]["attacker"], entry["verdict"]["leaning"]) == ("embeddings/knn", "above")
    apart = entry["without_copies"]
    assert apart["verdict"]["leaning"] == "none"
    assert apart["left_out"] > 25
    (told,) = found["soundness"]
    assert (told["kind"], told["exact"], told["near"]) == ("copies", 80, 160)
    assert told["sentence"].startswith("80 users have an exact copy (they share 40 rows) and 160 users have")


def test_copies_do_not_take_a_leak_away_that_is_there() -> None:
    rows = doubled()
    rows[:, 3] += 4 * LABEL
    rows[200:240] = rows[80:120]
    entry = audited(rows, people(gender=LABEL))["attributes"]["gender"]
    assert entry["without_copies"]["verdict"]["leaning"] == "above"


def test_without_copies_there_is_one_verdict_and_nothing_to_say() -> None:
    found = audited(noise(12), people(gender=LABEL))
    assert found["soundness"] == []
    assert found["attributes"]["gender"]["without_copies"] is None


def test_copies_are_copies_beside_a_column_of_ids() -> None:
    rows = torch.cat([doubled(), (PLACES / 900).float()[:, None]], 1)
    kinds = [one["kind"] for one in audited(rows, people(gender=LABEL))["soundness"]]
    assert kinds == ["copies", "ids"]


def test_where_everybody_is_a_copy_nobody_is_left_to_judge() -> None:
    rows = LABEL[:, None] * torch.ones(1, 2)
    rows[:, 0] += 1
    found = audited(rows, people(gender=LABEL))
    assert found["attributes"]["gender"]["without_copies"] is None
    assert "they share 2 rows" in sentences(found)


# Zeros


def test_vectors_of_zeros_are_told_and_the_verdict_is_given_without_them() -> None:
    rows, asleep = noise(6), (LABEL == 1) & (torch.arange(USERS) < 150)
    rows[asleep] = 0
    found = audited(rows, people(gender=LABEL), "knn", known=0.5)
    count, entry = int(asleep.sum()), found["attributes"]["gender"]
    assert [(one["kind"], one["count"]) for one in found["soundness"]] == [("zeros", count)]
    assert sentences(found).startswith(
        f"{count} users have a vector of zeros: nothing was learned of them, so"
    )
    assert entry["verdict"]["leaning"] == "above", "who was asleep gives the class away"
    assert entry["without_zeros"]["verdict"]["leaning"] == "none"
    assert 20 < entry["without_zeros"]["left_out"] < count
    assert entry["without_copies"] is None


def test_one_vector_of_zeros_is_told_of_one_user() -> None:
    rows = noise(6)
    rows[7] = 0
    assert sentences(audited(rows, people(gender=LABEL))).startswith("1 user has a vector of zeros: nothing")


# Columns


def test_constant_columns_are_named() -> None:
    rows = noise(6)
    rows[:, 1], rows[:, 4] = 2.5, 1e7
    assert constant(rows) == [1, 4]
    found = audited(rows, people(gender=LABEL))
    assert sentences(found).startswith("Columns 2 and 5 of 6 say the same of everybody")
    named = audited(rows, people(gender=LABEL), columns=tuple("uvwxyz"))
    assert sentences(named).startswith('Columns "v" and "y" of 6')


def test_a_constant_table_is_told_for_what_it_is() -> None:
    found = audited(torch.full((USERS, 4), 0.5), people(gender=LABEL))
    assert [one["kind"] for one in found["soundness"]] == ["constant"]
    assert "there is nothing to read, and a verdict means nothing" in sentences(found)


ORDER = KEYS.fold("order").order(USERS)
IDS = {
    "the ids": PLACES,
    "on another scale": 3 - PLACES / 1000,
    "a curve of them": (PLACES / 300).exp(),
    "dealt out anew": PLACES[ORDER] / 900,
    "row numbers in another order": ORDER.double() / USERS,
    "row numbers of which some users are missing": (ORDER + (ORDER > 60) + 2 * (ORDER > 200)).double() / 400,
}


@pytest.mark.parametrize("kind", IDS)
def test_columns_that_number_the_users_are_named(kind: str) -> None:
    rows = noise(5)
    rows[:, 2] = IDS[kind].float()
    assert counting(rows, PLACES) == [2]
    told = sentences(audited(rows, people(gender=LABEL)))
    assert told.startswith("Column 3 numbers the users")
    assert "leave it out" in told


def test_ids_that_are_words_are_placed_by_the_alphabet() -> None:
    names = [f"{chr(97 + k % 26)}{k}" for k in range(USERS)]
    rows = noise(3)
    rows[:, 1] = places_of(names).float() / 7
    assert counting(rows, places_of(names)) == [1]


@pytest.mark.parametrize("label", [LABEL, THREE, YEARS], ids=["two", "three", "value"])
def test_an_attribute_among_the_columns_is_named(label: Tensor) -> None:
    rows = noise(8)
    rows[:, 5] = 3 - 2 * label.float()
    assert [(one.how, one.columns, one.label) for one in answers_in(rows, label)] == [("same", [5], None)]


def test_one_class_among_the_columns_is_named() -> None:
    rows = noise(8)
    rows[:, 0] = (THREE == 1).float()
    told = sentences(audited(rows, people(job=THREE)))
    assert told.startswith("Column 1 is job = b itself: what is found of it is the answer read off")


def test_a_column_that_tells_without_a_mistake_is_named() -> None:
    rows = noise(8)
    rows[:, 3] += 30 * THREE
    (answer,) = answers_in(rows, THREE)
    assert (answer.how, answer.columns) == ("apart", [3])
    assert answers_in(rows, rows[:, 2].double().exp())[0].how == "apart"
    assert "Column 4 alone tells job without a mistake" in sentences(audited(rows, people(job=THREE)))


def test_an_attribute_that_was_turned_into_all_columns_is_named() -> None:
    turn = torch.linalg.qr(KEYS.fold("turn").normal(12, 12))[0]
    rows = torch.cat([noise(10), (THREE[:, None] == torch.arange(2)).float()], 1) @ turn
    assert [one.how for one in answers_in(rows, THREE)] == ["sum"]
    only = torch.cat([noise(11), (THREE[:, None] == 2).float()], 1) @ turn
    assert [(one.how, one.label) for one in answers_in(only, THREE)] == [("sum", 2)]
    assert "fixed weights is job = c itself" in sentences(audited(only.half().float(), people(job=THREE)))


def test_two_groups_of_ten_apart_in_one_of_many_columns_is_luck() -> None:
    few = torch.arange(20) % 10 == 0  # two against eighteen
    rows = noise(2000, 20)
    assert answers_in(rows, few.long()) == []


def test_of_200_tables_of_noise_few_have_columns_that_are_something_else() -> None:
    alarms = 0
    for table in range(200):
        keys, users = Keys.seed(table), (20, 60, 200)[table % 3]
        rows = keys.normal(users, (1, 3, 30)[table % 7 % 3])
        rows = [rows, (10 * rows).round() / 10, (rows > 0).float()][table % 4 % 3]
        label, value = keys.fold("l").integers(2 + table % 2, users), keys.fold("v").normal(users).double()
        told = [
            counting(rows, torch.arange(users).double()),
            answers_in(rows, label),
            answers_in(rows, value),
        ]
        alarms += any(told)
    assert alarms <= 17


# Uploads


def test_what_runs_upload_is_looked_through_reading_by_reading() -> None:
    rows = noise(16)
    rows[:40], rows[:, 3] = rows[100:140], LABEL.float()
    rows[:40, 3] = rows[100:140, 3]
    seats = torch.arange(USERS)[:, None]
    model = FedNCF(4, 1, dim=16, head=(8,), user="exposed")
    public = Public(model, {"user": Spec((1, 16)), "mlp1.weight": Spec((3,))}, False, None, seats, USERS)
    sent = Letter({"mlp1.weight": torch.zeros(3)}, {})

    def probe(*parts: object) -> Iterator[Exchange]:
        values = {"user": rows[:, None], "mlp1.weight": noise(3)}
        yield Exchange(1, sent, Uploads(torch.arange(USERS), values))

    attacks = {
        "embeddings": AttributeInference("embeddings", classifiers=("logistic",)),
        "head": AttributeInference("updates", ("mlp1",), ("logistic",)),
    }
    label = LABEL.clone()
    label[:40] = label[100:140]
    found = audit(Seen(public, probe), people(gender=label), QUICK, attacks)
    assert [(one["reads"], one["kind"]) for one in found["soundness"]] == [
        ("embeddings", "copies"),
        ("embeddings", "answer"),
    ]
    assert sentences(found).startswith("In embeddings: 80 users have an exact copy")
    assert found["attributes"]["gender"]["without_copies"]["left_out"] > 5


def test_nobody_looks_where_nothing_is_kept() -> None:
    attacks = {"": AttributeInference("embeddings", classifiers=("logistic",))}
    found = audit(Seen.of_vectors(doubled()), people(gender=LABEL), QUICK, attacks, sound=False)
    assert found["soundness"] == []
    assert found["attributes"]["gender"]["without_copies"] is None
