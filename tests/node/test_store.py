"""A store is what was written, or is refused: damaged, swapped or put together by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.corpus.stock import Stock
from tests.corpus.stores import DAMAGED, FORGED
from tests.node.mutations import odd_tensor
from veilrec import node
from veilrec.base.params import Params
from veilrec.errors import BadInput, Corrupted, VeilrecError
from veilrec.node.phone import Phone
from veilrec.node.store import CARD, OWN, RECIPE, NodeStore

FEW, MANY = 40, 2000
within = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return Stock(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def answered(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose user posts, after its first answer."""
    place = stock.poster(tmp_path_factory.mktemp("answered") / "store")
    node.answer(place, stock.letter_to_poster())
    return place


@pytest.fixture(scope="module")
def plain(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store under noise, after its first answer."""
    place = stock.store(tmp_path_factory.mktemp("plain") / "store")
    node.answer(place, stock.letter())
    return place


def again(store: Path, folder: Path) -> Path:
    shutil.rmtree(folder / "store", ignore_errors=True)
    return Path(shutil.copytree(store, folder / "store"))


def same(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_it_comes_back_as_it_was_saved(answered: Path, tmp_path: Path) -> None:
    store = NodeStore.open(again(answered, tmp_path))
    store.save(store.own)
    assert same(NodeStore.open(store.folder).own, store.own)
    assert (store.folder / OWN).stat().st_mode & 0o077 == 0
    assert store.card.people == 60
    assert store.card.rounds == 2


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found(name: str, stock: Stock, tmp_path: Path) -> None:
    change, says = DAMAGED[name]
    place = stock.store(tmp_path / "store")
    change(place, stock)
    with pytest.raises(Corrupted, match=says) as error:
        NodeStore.open(place)
    assert ";" in str(error.value)


@pytest.mark.parametrize("name", FORGED)
def test_what_no_store_has_is_found_under_any_seal(name: str, plain: Path, tmp_path: Path) -> None:
    change, says = FORGED[name]
    store = NodeStore.open(again(plain, tmp_path))
    own = dict(store.own)
    change(own)
    store.save(own)
    with pytest.raises(Corrupted, match=says):
        Phone.open(store.folder)


def test_the_parts_of_two_stores_do_not_go_together(stock: Stock, answered: Path, tmp_path: Path) -> None:
    """Not even those of one device at two times, but for the one file that changes."""
    for name in (RECIPE, CARD, OWN):
        place = again(answered, tmp_path)
        (place / name).write_bytes((stock.store(tmp_path / name) / name).read_bytes())
        with pytest.raises(Corrupted):
            NodeStore.open(place)


def check_bytes(data: st.DataObject, answered: Path, folder: Path) -> None:
    """Any byte of any file: what opens all the same is what was there."""
    place = again(answered, folder)
    path = place / data.draw(st.sampled_from([RECIPE, CARD, OWN]))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        begin = data.draw(st.integers(0, len(content)))
        content[begin : begin + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=30))
    path.write_bytes(content)
    try:
        found = NodeStore.open(place)
    except VeilrecError:
        return
    assert same(found.own, NodeStore.open(answered).own)
    assert found.recipe == NodeStore.open(answered).recipe


@settings(within, max_examples=FEW)
@given(data=st.data())
def test_changed_bytes_are_found(data: st.DataObject, answered: Path, tmp_path: Path) -> None:
    check_bytes(data, answered, tmp_path)


@pytest.mark.slow
@settings(within, max_examples=MANY)
@given(data=st.data())
def test_many_changed_bytes_are_found(data: st.DataObject, answered: Path, tmp_path: Path) -> None:
    check_bytes(data, answered, tmp_path)


def check_contents(data: st.DataObject, answered: Path, stock: Stock, folder: Path) -> None:
    """Other contents under a seal of their own: refused, or a store like any other."""
    store = NodeStore.open(again(answered, folder))
    own = dict(store.own)
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from([*sorted(own), "own/odd", "ledger/odd", "attribute/odd"]))
        like = own.get(name) if data.draw(st.booleans()) else None
        own[name] = data.draw(odd_tensor(like))
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            del own[name]
    store.save(own)
    for act in (
        lambda: node.ledger(store.folder),
        lambda: node.answer(store.folder, stock.letter_to_poster(1)),
    ):
        try:
            act()
        except VeilrecError as error:
            told = error.code
            if told not in (BadInput.code, Corrupted.code):
                raise


@settings(within, max_examples=FEW // 4)
@given(data=st.data())
def test_odd_contents_are_refused_or_served(
    data: st.DataObject, answered: Path, stock: Stock, tmp_path: Path
) -> None:
    check_contents(data, answered, stock, tmp_path)


@pytest.mark.slow
@settings(within, max_examples=600)
@given(data=st.data())
def test_many_odd_contents_are_refused_or_served(
    data: st.DataObject, answered: Path, stock: Stock, tmp_path: Path
) -> None:
    check_contents(data, answered, stock, tmp_path)
