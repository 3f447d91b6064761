"""The canonical store: what was saved is what is loaded, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.together import together
from veilrec.datasets import imported as module
from veilrec.datasets.common.card import checksum, read_card
from veilrec.datasets.imported import imported, write
from veilrec.datasets.synthetic import synthetic
from veilrec.errors import BadInput, Corrupted, VeilrecError
from veilrec.interactions import Interactions

FIELDS = ("user", "item", "rating", "time", "features")


def same(one: Interactions, two: Interactions) -> bool:
    for name in FIELDS:
        left, right = getattr(one, name), getattr(two, name)
        if (left is None) != (right is None) or not (left is None or torch.equal(left, right)):
            return False
    attributes = {name: codes.tolist() for name, codes in one.attributes.items()}
    plain = [
        (list(log.user_ids), list(log.item_ids), log.n_users, log.n_items, list(log.report), log.name)
        for log in (one, two)
    ]
    texts = [None if log.texts is None else list(log.texts) for log in (one, two)]
    classes = [{name: list(names) for name, names in log.classes.items()} for log in (one, two)]
    others = {name: codes.tolist() for name, codes in two.attributes.items()}
    values = [
        {name: value.nan_to_num(-7).tolist() for name, value in log.values.items()} for log in (one, two)
    ]
    if values[0] != values[1]:
        return False
    return plain[0] == plain[1] and texts[0] == texts[1] and classes[0] == classes[1] and attributes == others


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def logs(draw: st.DrawFn) -> Interactions:
    users = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    items = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    pairs = st.tuples(st.integers(0, len(users) - 1), st.integers(0, len(items) - 1))
    rows = draw(st.lists(pairs, max_size=12))
    user, item = (torch.tensor([row[side] for row in rows], dtype=torch.long) for side in (0, 1))
    names = draw(st.lists(words, min_size=2, max_size=4, unique=True))
    attribute = draw(st.lists(st.integers(-1, len(names) - 1), min_size=len(users), max_size=len(users)))
    texts = st.lists(words, min_size=len(items), max_size=len(items))
    amount = st.floats(allow_infinity=False) | st.just(float("nan"))
    amounts = draw(st.lists(amount, min_size=len(users), max_size=len(users)))
    column = st.lists(st.integers(0, 2**62), min_size=len(rows), max_size=len(rows))
    return Interactions.build(
        user,
        item,
        users,
        items,
        rating=draw(st.none() | column.map(lambda values: torch.tensor(values, dtype=torch.float32))),
        time=draw(st.none() | column.map(lambda values: torch.tensor(values, dtype=torch.long))),
        attributes={draw(words): torch.tensor(attribute)} if draw(st.booleans()) else {},
        values={draw(words): torch.tensor(amounts, dtype=torch.float64)} if draw(st.booleans()) else {},
        texts=draw(st.none() | texts),
        features=draw(st.none() | st.just(torch.ones(len(users), 2))),
        report=draw(st.lists(words, max_size=2)),
        name=draw(words),
    )


@given(log=logs(), data=st.data())
def test_load_after_save_is_the_identity(
    tmp_path_factory: pytest.TempPathFactory, log: Interactions, data: st.DataObject
) -> None:
    classes = {name: tuple(data.draw(st.lists(words, min_size=4, max_size=4))) for name in log.attributes}
    log = Interactions(**{**vars(log), "classes": classes})
    folder = tmp_path_factory.mktemp("store")
    write(log, folder / "one")
    once = imported(folder / "one")
    write(once, folder / "two")
    assert same(log, once)
    assert same(once, imported(folder / "two"))
    assert (folder / "one" / "events.safetensors").read_bytes() == (
        folder / "two" / "events.safetensors"
    ).read_bytes()


def test_another_split_seed_keeps_the_values(tmp_path: Path) -> None:
    log = synthetic(users=20, items=30, least=3)
    write(log, tmp_path / "toy")
    assert torch.equal(
        imported(tmp_path / "toy", split_seed=3).values["age in years"], log.values["age in years"]
    )


def test_names_of_features_come_back(tmp_path: Path) -> None:
    log = replace(
        synthetic(users=20, items=30, least=3), features=torch.ones(20, 2), feature_names=("a", "b=c")
    )
    write(log, tmp_path / "toy")
    for split_seed in (0, 3):
        assert tuple(imported(tmp_path / "toy", split_seed=split_seed).feature_names) == ("a", "b=c")


def test_the_card_says_what_is_inside(tmp_path: Path) -> None:
    log = synthetic(users=20, items=30, least=3)
    write(log, tmp_path / "toy")
    card = read_card(tmp_path / "toy")
    assert (card["users"], card["items"], card["events"]) == (20, 30, len(log))
    assert sorted(os.listdir(tmp_path)) == ["toy"]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "toy").iterdir()}
    assert modes == {0o600}


def test_another_split_seed_moves_only_ties(tmp_path: Path) -> None:
    write(synthetic(users=40, items=60, least=5), tmp_path / "toy")
    one, two = imported(tmp_path / "toy"), imported(tmp_path / "toy", split_seed=1)
    assert torch.equal(two.item, synthetic(users=40, items=60, least=5, split_seed=1).item)
    assert torch.equal(one.time, two.time)  # type: ignore[arg-type]
    assert not torch.equal(one.item, two.item)
    assert one.report == two.report


def test_an_existing_dataset_is_kept_unless_told(tmp_path: Path) -> None:
    first, second = synthetic(users=20, items=30, least=3), synthetic(users=20, items=30, least=3, seed=1)
    write(first, tmp_path / "toy")
    with pytest.raises(BadInput, match="--replace"):
        write(second, tmp_path / "toy")
    assert same(imported(tmp_path / "toy"), first)
    write(second, tmp_path / "toy", overwrite=True)
    assert same(imported(tmp_path / "toy"), second)
    assert os.listdir(tmp_path) == ["toy"]


def test_a_folder_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="in the way"):
        write(synthetic(users=20, items=30, least=3), tmp_path / "toy", overwrite=True)
    assert (tmp_path / "toy" / "thesis.txt").read_text() == "years of work"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = synthetic(users=20, items=30, least=3)
    write(log, tmp_path / "old")

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write_file", full)
    for name in ("new", "old"):
        with pytest.raises(BadInput, match="No space left"):
            write(log, tmp_path / name, overwrite=True)
    assert os.listdir(tmp_path) == ["old"]
    assert same(imported(tmp_path / "old"), log)


@pytest.mark.parametrize("place", range(1, 4))
def test_a_process_that_dies_while_it_replaces_a_dataset_loses_none(tmp_path: Path, place: int) -> None:
    """What it leaves is put back, or removed, by the next one that writes a dataset of this name."""
    old, new = (synthetic(users=20, items=30, least=3, seed=seed) for seed in (0, 1))
    write(old, tmp_path / "toy")
    aside, fresh = tmp_path / ".toy.01234567.old", tmp_path / ".toy.01234567"
    if place < 3:
        shutil.copytree(tmp_path / "toy", fresh)
    if place > 1:
        (tmp_path / "toy").rename(aside)
    if place > 2:
        shutil.copytree(aside, tmp_path / "toy")
    with pytest.raises(BadInput, match="--replace"):
        write(new, tmp_path / "toy")
    assert same(imported(tmp_path / "toy"), old)
    assert os.listdir(tmp_path) == ["toy"]


def test_two_who_store_under_one_name_store_one(tmp_path: Path) -> None:
    logs = [synthetic(users=20, items=30, least=3, seed=seed) for seed in (0, 1)]
    together(*(partial(write, log, tmp_path / "new" / "toy", overwrite=True) for log in logs))
    assert any(same(imported(tmp_path / "new" / "toy"), log) for log in logs)
    assert os.listdir(tmp_path / "new") == ["toy"]


@pytest.mark.parametrize("name", ["dataset.json", "events.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_damage_is_noticed(tmp_path: Path, name: str, damage: str) -> None:
    write(synthetic(users=20, items=30, least=3), tmp_path / "toy")
    path = tmp_path / "toy" / name
    data = path.read_bytes()
    places = range(1, len(data) - 1, max(1, len(data) // 40))
    for place in places if damage != "empty" else [0]:
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        path.write_bytes(flipped if damage == "flip" else data[:place])
        with pytest.raises(VeilrecError) as caught:
            imported(tmp_path / "toy")
        assert caught.value.code in (2, 4)
        assert str(path) in str(caught.value)
    path.write_bytes(data)
    assert len(imported(tmp_path / "toy")) > 0


def test_other_formats_are_told_apart(tmp_path: Path) -> None:
    write(synthetic(users=20, items=30, least=3), tmp_path / "toy")
    path = tmp_path / "toy" / "dataset.json"
    card = json.loads(path.read_text())
    changes = [({"version": 2}, BadInput), ({"format": "x"}, BadInput), ({"users": 7}, Corrupted)]
    for change, kind in changes:
        path.write_text(json.dumps({**card, **change}))
        with pytest.raises(kind):
            imported(tmp_path / "toy")
    for text, kind in (("[" * 10**5, Corrupted), ("[]", BadInput), ("{", Corrupted)):
        path.write_text(text)
        with pytest.raises(kind):
            imported(tmp_path / "toy")


def test_what_no_writer_wrote_is_refused(tmp_path: Path) -> None:
    log = synthetic(users=20, items=30, least=3)
    wrong = [
        {"item": log.item + 30},
        {"user": log.user.flip(0)},
        {"item": log.item[:-1]},
        {"item_ids": ["x"]},
        {"values": {"age": torch.ones(19).double()}},
        {"values": {"age": torch.ones(20)}},
        {"values": {"age": torch.full((20,), torch.inf).double()}},
    ]
    for number, change in enumerate(wrong):
        write(Interactions(**{**vars(log), **change}), tmp_path / str(number))
        with pytest.raises(Corrupted):
            imported(tmp_path / str(number))
    write(log, tmp_path / "toy")
    path = tmp_path / "toy" / "dataset.json"
    card = {key: value for key, value in json.loads(path.read_text()).items() if key != "classes"}
    path.write_text(json.dumps({**card, "checksum": checksum(card)}))
    with pytest.raises(Corrupted):
        imported(tmp_path / "toy")
