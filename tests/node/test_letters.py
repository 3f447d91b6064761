"""A device believes nothing that it is sent: every letter is held against types, ranges and lengths."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.corpus.messages import LETTERS, POSTS, UPLOAD_SCHEMA, UPLOADS, Make
from tests.corpus.stock import Stock
from tests.node.mutations import broken, odd_values
from veilrec import node
from veilrec.base.params import Rows
from veilrec.errors import BadInput
from veilrec.node.letters import Letterbox, Received
from veilrec.node.phone import Phone
from veilrec.node.store import NodeStore
from veilrec.wire import codec

FEW, MANY = 60, 3000


class World(NamedTuple):
    """A device without posts and one with them, how each reads, and a good letter to each."""

    stock: Stock
    plain: Letterbox
    poster: Letterbox
    letters: tuple[bytes, bytes]

    @property
    def readers(self) -> tuple[Letterbox, Letterbox]:
        return self.plain, self.poster


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("letters")
    stock = Stock(folder / "stock")
    stores = stock.store(folder / "plain"), stock.poster(folder / "poster")
    plain, poster = (Phone.open(store).letterbox for store in stores)
    posts = {f"post/{n}": torch.zeros(3, *spec.shape, dtype=spec.dtype) for n, spec in stock.posts.items()}
    sheet = {**codec.decode(stock.letter_to_poster(), poster.fleet.form.sheet), **posts}
    notes = {"run": "spring", "attempt": "2"}
    return World(stock, plain, poster, (stock.letter(run="spring", attempt=2), codec.encode(sheet, notes)))


def test_good_letters_are_read(world: World) -> None:
    for reader, letter in zip(world.readers, world.letters, strict=True):
        received = reader.read(letter)
        assert (received.letter.round, received.notes.run, received.notes.attempt) == (0, "spring", 2)
        assert len(letter) < reader.longest
    assert world.plain.read(world.stock.letter()).hash == world.plain.read(world.letters[0]).hash
    assert len(world.poster.read(world.letters[1]).letter.posts) == len(world.stock.posts)


@pytest.mark.parametrize("name", LETTERS)
def test_bad_letters_are_refused(name: str, world: World) -> None:
    make, says = LETTERS[name]
    if name == "another recipe":
        pytest.skip("what the recipe is the store knows, not the reader")
    refused(world.plain, world.stock, make, says)


@pytest.mark.parametrize("name", POSTS)
def test_bad_posts_are_refused(name: str, world: World) -> None:
    refused(world.poster, world.stock, *POSTS[name])


@pytest.mark.parametrize("name", UPLOADS)
def test_bad_uploads_are_refused(name: str, world: World) -> None:
    make, says = UPLOADS[name]
    with pytest.raises(BadInput, match=says) as error:
        codec.decode(make(world.stock), UPLOAD_SCHEMA, sender="upload")
    assert str(error.value).startswith("upload: ")


def refused(reader: Letterbox, stock: Stock, make: Make, says: str) -> None:
    with pytest.raises(BadInput, match=says) as error:
        reader.read(make(stock))
    assert str(error.value).startswith("message: ")


@pytest.mark.parametrize("which", [0, 1])
def test_a_letter_is_known_again_by_what_it_holds(which: int, world: World) -> None:
    """However its bytes are put together; and by nothing less than all of it."""
    reader, data = world.readers[which], world.letters[which]
    first = reader.read(data)
    body, head = data[8 + int.from_bytes(data[:8], "little") :], int.from_bytes(data[:8], "little")
    spaced = (head + 8).to_bytes(8, "little") + data[8 : 8 + head] + b" " * 8 + body
    assert spaced != data
    assert reader.read(spaced).hash == first.hash
    flipped = bytearray(data)
    flipped[8 + head] ^= 1  # the last bit of the first value
    assert reader.read(bytes(flipped)).hash != first.hash


def probe(reader: Letterbox, data: bytes) -> Received | None:
    """A letter, or nothing where it is refused; any other error is a fault."""
    try:
        return reader.read(data)
    except BadInput:
        return None


def check_broken(world: World, data: st.DataObject) -> None:
    which = data.draw(st.integers(0, 1))
    reader, letter = world.readers[which], world.letters[which]
    found = probe(reader, data.draw(broken(letter)))
    if found is not None:  # all that was let through is within the declared form
        assert found.letter.all.keys() == reader.read(letter).letter.all.keys()
        assert all(bool(v.isfinite().all()) for v in found.letter.all.values())
        assert 0 <= found.letter.round < reader.rounds


within = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(within, max_examples=FEW)
@given(data=st.data())
def test_broken_letters_are_refused_or_within_the_form(data: st.DataObject, world: World) -> None:
    check_broken(world, data)


@pytest.mark.slow
@settings(within, max_examples=MANY)
@given(data=st.data())
def test_many_broken_letters_are_refused_or_within_the_form(data: st.DataObject, world: World) -> None:
    check_broken(world, data)


def check_odd(world: World, data: st.DataObject, folder: Path) -> None:
    """Values within the form, however odd, end in an answer or a refusal, and in a store that opens."""
    which = data.draw(st.integers(0, 1))
    letter = data.draw(odd_values(world.letters[which]))
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    (world.stock.poster if which else world.stock.store)(store)
    before = (store / node.OWN).read_bytes()
    try:
        reply = node.answer(store, letter)
    except BadInput:
        assert (store / node.OWN).read_bytes() == before
    else:
        assert node.answer(store, letter) == reply
        Phone.open(store)
        assert NodeStore.open(store).card.user


@settings(within, max_examples=8)
@given(data=st.data())
def test_odd_values_end_in_an_answer_or_a_refusal(data: st.DataObject, world: World, tmp_path: Path) -> None:
    check_odd(world, data, tmp_path)


@pytest.mark.slow
@settings(within, max_examples=400)
@given(data=st.data())
def test_many_odd_values_end_in_an_answer_or_a_refusal(
    data: st.DataObject, world: World, tmp_path: Path
) -> None:
    check_odd(world, data, tmp_path)


def check_upload(data: st.DataObject, world: World) -> None:
    fed = world.plain.fleet
    schema = fed.schema()
    rows = codec.encode({"item": Rows(torch.tensor([1, 4, 7]), torch.ones(3, 4)), "user": torch.ones(1, 4)})
    sent = data.draw(broken(rows))
    try:
        found = codec.decode(sent, schema, sender="upload")
    except BadInput:
        return
    codec.check(found, schema)


@settings(within, max_examples=FEW)
@given(data=st.data())
def test_broken_uploads_are_refused_or_within_the_schema(data: st.DataObject, world: World) -> None:
    check_upload(data, world)


@pytest.mark.slow
@settings(within, max_examples=MANY)
@given(data=st.data())
def test_many_broken_uploads_are_refused_or_within_the_schema(data: st.DataObject, world: World) -> None:
    check_upload(data, world)
