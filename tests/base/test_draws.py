"""Draws: made once, kept for their owner alone, and on the disk before anybody has them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch

from veilrec.base import draws as module
from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.errors import BadInput, Corrupted

VECTORS = torch.arange(6.0).reshape(3, 2)
TAGS = torch.tensor([11, 7, 5])


def test_whoever_asks_again_gets_the_same_and_nobody_else_does() -> None:
    one, other = Draws(), Draws()
    assert torch.equal(one.words("a", 4), one.words("a", 4))
    assert not torch.equal(one.words("a", 4), one.words("b", 4))
    assert not torch.equal(one.words("a", 4), one.fold("x").words("a", 4))
    assert not torch.equal(one.words("a", 4), other.words("a", 4))
    assert torch.equal(one.fold("x").uniform("lot", TAGS), one.fold("x").uniform("lot", TAGS))


@pytest.mark.parametrize("keys", [None, Keys.seed(3)], ids=["secret", "keyed"])
def test_a_number_of_a_user_is_drawn_once_whoever_else_is_asked_for(keys: Keys | None) -> None:
    draws = Draws(keys)
    first = draws.uniform("lot", TAGS)
    more = draws.uniform("lot", torch.tensor([5, 99, 11]))
    assert torch.equal(more[[2, 0]], first[[0, 2]])
    assert len({*first.tolist(), *more.tolist()}) == 4
    assert draws.uniform("lot", TAGS[:0]).shape == (0,)


def test_keyed_draws_are_the_same_every_time_and_say_that_they_are() -> None:
    one, other = Draws(Keys.seed(3)), Draws(Keys.seed(3))
    assert torch.equal(one.normal("null", 2, 3), other.normal("null", 2, 3))
    assert torch.equal(one.uniform("lot", TAGS), other.uniform("lot", TAGS.flip(0)).flip(0))
    assert (one.release, Draws().release) == (False, True)


def test_a_file_is_for_its_owner_and_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "draws"
    before = Draws.at(path, VECTORS).fold("gender")
    lots, null = before.uniform("lot", TAGS), before.normal("null", 4)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    after = Draws.at(path, VECTORS).fold("gender")
    assert torch.equal(after.uniform("lot", TAGS), lots)
    assert torch.equal(after.normal("null", 4), null)
    after.remove()
    assert not path.exists()


def test_nobody_has_a_number_that_is_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BadInput("draws", "the disk is full")

    monkeypatch.setattr(module, "write", full)
    with pytest.raises(BadInput, match="full"):
        Draws.at(tmp_path / "draws", VECTORS).uniform("lot", TAGS)


def test_draws_for_other_vectors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "draws"
    Draws.at(path, VECTORS).words("a", 1)
    for other in (VECTORS + 1, VECTORS.double(), VECTORS.reshape(2, 3)):
        with pytest.raises(BadInput, match="other vectors"):
            Draws.at(path, other)
    with pytest.raises(BadInput, match="was drawn for"):
        Draws.at(path, VECTORS).words("a", 2)


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "draws"
    path.write_text("no draws")
    with pytest.raises(Corrupted):
        Draws.at(path, VECTORS)
    module.write(path, {"user": VECTORS})
    with pytest.raises(Corrupted, match="no draws"):
        Draws.at(path, VECTORS)
