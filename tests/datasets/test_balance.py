"""Balanced data: as many users of each class, whoever they are and in whatever order they come."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.commands import call
from tests.datasets.test_movielens import REAL, needs_1m, needs_100k
from veilrec.datasets.common.balance import balanced
from veilrec.datasets.ml_1m import ml_1m
from veilrec.datasets.ml_100k import ml_100k
from veilrec.datasets.synthetic import synthetic
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.recipe import Recipe
from veilrec.runs.fingerprint import data_fingerprint

CLASSES = ("female", "male", "other")


def people(genders: list[int], order: list[int] | None = None, **rest: Any) -> Interactions:
    """Users a, b, c … with these genders: all touch x, y and an item of their own; z is touched by nobody."""
    order = list(range(len(genders))) if order is None else order
    users = [chr(ord("a") + number) for number in order]
    items = ["x", "y", *(f"of {name}" for name in users), "z"]
    pairs = [(user, item) for user in range(len(users)) for item in (0, 1, 2 + user)]
    user, item = (torch.tensor([pair[side] for pair in pairs], dtype=torch.long) for side in (0, 1))
    built = Interactions.build(
        user,
        item,
        users,
        items,
        time=torch.arange(len(pairs)) % 3,
        attributes={"gender": torch.tensor([genders[number] for number in order])},
        classes={"gender": CLASSES},
        values={"age": torch.tensor([float(number) for number in order], dtype=torch.float64)},
        features=torch.tensor([[float(number)] for number in order]),
        texts=[f"title of {name}" for name in items],
        report=["as it came"],
    )
    return replace(built, **rest)


def events(log: Interactions) -> list[tuple[str, str]]:
    pairs = zip(log.user.tolist(), log.item.tolist(), strict=True)
    return [(log.user_ids[user], log.item_ids[item]) for user, item in pairs]


def test_the_larger_class_shrinks_and_strangers_go() -> None:
    log = people([1, 0, 1, -1, 1, 0, 1])
    small = balanced(log, "gender")
    assert (small.n_users, len(small.user_ids)) == (4, 4)
    assert {"b", "f"} < set(small.user_ids)
    assert "d" not in small.user_ids  # nobody knows their gender
    assert small.attributes["gender"].bincount().tolist() == [2, 2]
    assert events(small) == [event for event in events(log) if event[0] in small.user_ids]
    assert list(small.item_ids) == ["x", "y", *(f"of {name}" for name in small.user_ids), "z"]
    assert small.n_items == len(small.item_ids) == 7
    assert small.texts == [f"title of {name}" for name in small.item_ids]
    assert small.features is not None
    assert small.features[:, 0].tolist() == small.values["age"].tolist()
    assert [chr(ord("a") + int(age)) for age in small.values["age"]] == list(small.user_ids)
    assert small.time is not None
    assert small.time.tolist() == [0, 1, 2] * 4
    assert small.report == (
        "as it came",
        "2 users of larger classes of gender (male: 2) left out at random: "
        "2 of each class stay (data.balance)",
        "1 user without a value of gender left out (data.balance)",
        "3 items that nobody else touched left out (data.balance)",
    )


def test_nothing_is_asked_or_nothing_is_to_be_done() -> None:
    log = people([1, 0, 1, 0])
    assert balanced(log, "") is log
    same = balanced(log, "gender")
    assert data_fingerprint(same) == data_fingerprint(log)
    assert same.report == log.report
    once = balanced(people([1, 0, 1, 1]), "gender")
    twice = balanced(once, "gender")
    assert (data_fingerprint(twice), twice.report) == (data_fingerprint(once), once.report)


GENDERS = st.lists(st.sampled_from([-1, 0, 1, 2]), min_size=4, max_size=20).filter(
    lambda found: len(set(found) - {-1}) > 1
)


@given(GENDERS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_who_stays_hangs_on_no_order(genders: list[int], seed: int, random: Any) -> None:
    order = list(range(len(genders)))
    random.shuffle(order)
    one, two = balanced(people(genders), "gender", seed), balanced(people(genders, order), "gender", seed)
    assert set(one.user_ids) == set(two.user_ids)
    counts = one.attributes["gender"].bincount(minlength=3)
    assert set(counts.tolist()) - {0} == {min(genders.count(g) for g in {*genders} - {-1})}
    assert sorted(events(one)) == sorted(events(two))
    assert set(one.item_ids) == set(two.item_ids) == {i for _, i in events(one)} | {"z"}


def test_another_seed_leaves_out_others() -> None:
    log = people([1] * 20 + [0])
    found = [tuple(balanced(log, "gender", seed).user_ids) for seed in range(8)]
    assert len(set(found)) > 3
    assert found[0] == tuple(balanced(log, "gender", 0).user_ids)
    marks = {data_fingerprint(each) for each in (log, balanced(log, "gender", 0), balanced(log, "gender", 1))}
    assert len(marks) == 3


def test_classes_that_nobody_is_in_do_not_count() -> None:
    small = balanced(people([2, 0, 2]), "gender")
    assert sorted(small.attributes["gender"].tolist()) == [0, 2]
    with pytest.raises(BadInput, match=r"data\.balance: fewer than two classes of gender have users"):
        balanced(people([1, 1, -1]), "gender")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gendre", r'data\.balance: the data has no attribute "gendre"; did you mean "gender"\?'),
        ("age", r'data\.balance: "age" is a number and has no classes; choose one of: gender'),
    ],
)
def test_what_cannot_be_balanced_is_refused(name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        balanced(people([1, 0]), name)


# ---- as a setting of any dataset

TOY = {"name": "synthetic", "users": 60, "items": 40}


def test_a_recipe_balances_any_dataset(tmp_path: Path) -> None:
    whole = Recipe.of({"data": TOY}).data()
    half = Recipe.of({"data": {**TOY, "balance": "region"}}).data()
    assert len(set(half.attributes["region"].bincount().tolist())) == 1
    assert half.n_users < whole.n_users
    log, told = tmp_path / "log.csv", tmp_path / "people.csv"
    log.write_text(
        "user,item\n" + "".join(f"{user},{item}\n" for user in range(9) for item in range(user + 2))
    )
    told.write_text("user,sex\n" + "".join(f"{user},{'fm'[user > 2]}\n" for user in range(8)))
    table = {"name": "csv", "path": str(log), "attributes": str(told), "balance": "sex"}
    mine = Recipe.of({"data": table}).data()
    assert (mine.n_users, mine.attributes["sex"].tolist().count(0)) == (6, 3)


def test_the_setting_is_off_unless_somebody_asks() -> None:
    recipe = Recipe.of({"data": TOY})
    assert recipe.values["data"]["balance"] == ""
    plain = synthetic(users=60, items=40)
    assert data_fingerprint(recipe.data()) == data_fingerprint(plain)


def test_a_wrong_attribute_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[data]\nname = "synthetic"\nbalance = "regoin"\n')
    with pytest.raises(BadInput, match=r'a\.toml:3: data\.balance: .*did you mean "region"\?'):
        Recipe.load(path).experiment()
    path.write_text('[data]\nname = "synthetic"\nbalance = true\n')
    with pytest.raises(BadInput, match=r"a\.toml:3: data\.balance: true will not do"):
        Recipe.load(path)


def test_a_result_says_who_was_left_out() -> None:
    settings = {"data": {**TOY, "balance": "gender"}, "plan": {"rounds": 1}, "model": {"dim": 4}}
    result = Recipe.of(settings).experiment().run()
    counts = result.data["attributes"]["gender"]
    assert counts["female"] == counts["male"] == result.data["users"] / 2
    assert any("left out at random" in sentence for sentence in result.data["report"])


def test_show_balances_too(capsys: pytest.CaptureFixture[str]) -> None:
    about = json.loads(call(capsys, "data", "show", "synthetic", "--balance", "gender", "--json").out)
    assert about["attributes"]["gender"]["female"] == about["users"] // 2
    code, out, _ = call(capsys, "data", "show", "synthetic", "--balance", "gender")
    assert code == 0
    assert "left out at random" in " ".join(out.split())
    code, _, err = call(capsys, "data", "show", "synthetic", "--balance", "gendre")
    assert (code, 'did you mean "gender"?' in err) == (2, True)


@needs_100k
def test_100k_has_the_546_users_of_fedau2() -> None:
    log = balanced(ml_100k(REAL / "ml-100k"), "gender")
    assert log.attributes["gender"].bincount().tolist() == [273, 273]
    assert (log.n_users, log.n_items, len(log)) == (546, 1_631, 56_283)


@pytest.mark.slow
@needs_1m
def test_1m_has_the_3418_users_of_fedau2() -> None:
    log = balanced(ml_1m(REAL / "ml-1m" / "ml-1m.zip"), "gender")
    assert log.attributes["gender"].bincount().tolist() == [1_709, 1_709]
    assert (log.n_users, log.n_items, len(log)) == (3_418, 3_660, 544_004)
