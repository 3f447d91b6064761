"""A device answers at most once: under callers at the same time, under crashes, whoever asks."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.forge import Forge, Order, Setting
from tests.node.test_device import CLIENT, NOISY, POSTING, alone, federation, files, letters, noisy
from veilrec import node
from veilrec.base import files as base
from veilrec.base.locks import locked
from veilrec.errors import BadInput, VeilrecError
from veilrec.node.contents import ANSWER, REPLY
from veilrec.node.phone import Phone
from veilrec.node.store import NodeStore
from veilrec.protocol import State
from veilrec.rounds import Federation

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class World(NamedTuple):
    """A device of secret noise, and its server."""

    engine: Federation
    state: State
    store: Path

    def letter(self, round: int = 0, **notes: Any) -> bytes:
        return node.letter(self.engine, replace(self.state, round=round), CLIENT, **notes)

    def other(self, round: int = 0) -> bytes:
        """Another letter of a round."""
        item = self.state.server["item"] + 0.5
        changed = replace(self.state, round=round, server={**self.state.server, "item": item})
        return node.letter(self.engine, changed, CLIENT)


@pytest.fixture
def phone(tmp_path: Path) -> World:
    engine, recipe = federation(noisy(NOISY["Laplace, touched rows"]))
    node.provision(engine, CLIENT, recipe.toml(), tmp_path / "store")
    return World(engine, engine.start(), tmp_path / "store")


def at_once(calls: list[Callable[[], bytes]]) -> list[bytes | VeilrecError]:
    """What several threads get that begin together."""
    found: list[bytes | VeilrecError] = [b""] * len(calls)
    begin = threading.Barrier(len(calls))

    def work(place: int) -> None:
        begin.wait(30)
        try:
            found[place] = calls[place]()
        except VeilrecError as error:
            found[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.parametrize("callers", [2, 8])
def test_callers_at_the_same_time_get_the_same_bytes(callers: int, phone: World) -> None:
    """Noise drawn twice could be averaged away, and the ledger would count one."""
    letter = phone.letter()
    found = at_once([lambda: node.answer(phone.store, letter)] * callers)
    assert len(set(found)) == 1
    assert isinstance(found[0], bytes)
    assert len(found[0]) > 100
    assert node.ledger(phone.store)["answered"] == 1
    assert sorted(files(phone.store)) == [node.CARD, node.OWN, node.RECIPE]


def test_planted_without_the_lock_the_noise_is_drawn_twice(
    phone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read the store before either writes it."""
    read, both = Phone.read, threading.Barrier(2)

    def wait(self: Phone, message: bytes, **rest: Any) -> Any:
        both.wait(30)
        return read(self, message, **rest)

    monkeypatch.setattr("veilrec.node.acts.locked", lambda *arguments: nullcontext())
    monkeypatch.setattr(Phone, "read", wait)
    letter = phone.letter()
    assert len(set(at_once([lambda: node.answer(phone.store, letter)] * 2))) == 2


def test_of_two_letters_at_the_same_time_one_is_answered(phone: World) -> None:
    calls = [
        lambda letter=letter: node.answer(phone.store, letter) for letter in (phone.letter(), phone.other())
    ]
    found = at_once(calls)
    (error,) = (one for one in found if isinstance(one, VeilrecError))
    assert "has answered round 1, and not this letter" in str(error)
    assert node.ledger(phone.store)["answered"] == 1


def processes(forge: Forge, phone: World, message: list[bytes], folder: Path) -> list[tuple[int, bytes]]:
    """How commands end that begin together, and what they wrote."""
    folder.mkdir()
    started = []
    for place, letter in enumerate(message):
        (folder / f"in{place}").write_bytes(letter)
        streams = {"stdin": "in", "stdout": "out", "stderr": "err"}
        setting = Setting(**{name: str(folder / f"{end}{place}") for name, end in streams.items()})
        order = {"arguments": [str(phone.store)]}
        started.append(forge.start(Order("veilrec.node.command:main", order, setting)))
    ended = [forge.wait(process) for process in started]
    return [
        (-99 if one is None else one.code, (folder / f"out{place}").read_bytes())
        for place, one in enumerate(ended)
    ]


@needs_fork
def test_processes_at_the_same_time_get_the_same_bytes(phone: World, forge: Forge, tmp_path: Path) -> None:
    one, other = processes(forge, phone, [phone.letter()] * 2, tmp_path / "run")
    assert one == other
    assert one[0] == 0
    assert len(one[1]) > 100
    assert node.ledger(phone.store)["answered"] == 1


@needs_fork
@pytest.mark.slow
def test_ten_times_eight_processes(phone: World, forge: Forge, tmp_path: Path) -> None:
    """Seven with the same letter, one with another: either it is the only one that is answered, or is not."""
    fresh = tmp_path / "fresh"
    shutil.copytree(phone.store, fresh)
    for turn in range(10):
        shutil.rmtree(phone.store)
        shutil.copytree(fresh, phone.store)
        messages = [phone.letter()] * 7 + [phone.other()]
        found = processes(forge, phone, messages, tmp_path / f"run {turn}")
        same, other = set(found[:7]), found[7]
        assert len(same) == 1
        assert sorted([next(iter(same))[0], other[0]]) == [0, 2]
        assert node.ledger(phone.store)["answered"] == 1


def test_who_waits_too_long_is_told_that_another_process_answers(
    phone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilrec.node.acts.WAIT", 0.05)
    before = files(phone.store)
    with locked(phone.store):
        answer = alone(phone.store, phone.letter())
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert b"locked by pid" in answer.stderr
    assert files(phone.store) == before
    assert alone(phone.store, phone.letter()).returncode == 0


# Crashes


class Killed(BaseException):
    """The end of a process in the middle of its work."""


@contextmanager
def killed_at(
    place: int, patch: pytest.MonkeyPatch, end: Callable[[], Any], *, truly: bool = False
) -> Iterator[list[str]]:
    """End at the n-th call that changes something on the disk; the list names all calls so far.

    Only a process that is truly gone ends where it removes and closes its lock: one that lives holds it.
    """
    calls: list[str] = []

    def watched(owner: Any, name: str, patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **rest: Any) -> Any:
            calls.append(name)
            if len(calls) == place:
                end()
            return original(*arguments, **rest)

        patch.setattr(owner, name, call)

    with patch.context() as inner:
        for name in ("open", "write", "ftruncate", "fsync", "replace", *(["close"] if truly else [])):
            watched(os, name, inner)
        watched(base.Sink, "write", inner)
        if truly:
            watched(Path, "unlink", inner)
        yield calls


def raised() -> None:
    raise Killed


def whole(phone: World, before: dict[str, bytes], letter: bytes) -> bytes:
    """After a crash: the store is the old one or the new one, and a repeat gets one answer for ever."""
    own = NodeStore.open(phone.store).own
    kept = bytes(own[ANSWER + REPLY].tolist()) if ANSWER + REPLY in own else None
    if kept is None:
        assert (phone.store / node.OWN).read_bytes() == before[node.OWN]
    reply = node.answer(phone.store, letter)
    assert kept in (None, reply)
    assert node.answer(phone.store, letter) == reply
    assert node.ledger(phone.store)["answered"] == 1
    assert sorted(files(phone.store)) == [node.CARD, node.OWN, node.RECIPE]
    return reply


def crash_everywhere(phone: World, folder: Path, patch: pytest.MonkeyPatch, last: bool = False) -> None:
    """Crash at each call in turn, or at the end of a write alone, and look at what is left each time."""
    letter, before, fresh = phone.letter(), files(phone.store), folder / "fresh"
    shutil.copytree(phone.store, fresh)
    with killed_at(0, patch, raised) as calls:
        node.answer(phone.store, letter)
    assert {"replace", "fsync", "write", "open"} <= set(calls)
    assert len(calls) > 8
    for place, name in enumerate(calls, 1):
        if last and name not in ("fsync", "replace"):
            continue
        shutil.rmtree(phone.store)
        shutil.copytree(fresh, phone.store)
        with pytest.raises(Killed), killed_at(place, patch, raised):
            node.answer(phone.store, letter)
        whole(phone, before, letter)


def test_a_crash_around_the_commit_leaves_the_old_or_the_new(
    phone: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_everywhere(phone, tmp_path, monkeypatch, last=True)


@pytest.mark.slow
def test_a_crash_between_any_two_writes_leaves_the_old_or_the_new(
    phone: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_everywhere(phone, tmp_path, monkeypatch)


def killed(store: str, letter: str, place: int) -> int:
    """In a process of its own: answer, and be gone at the n-th call; 0 where there are fewer."""
    with pytest.MonkeyPatch.context() as patch, killed_at(place, patch, lambda: os._exit(9), truly=True):
        node.answer(Path(store), Path(letter).read_bytes())
    return 0


@needs_fork
@pytest.mark.slow
def test_a_process_that_is_gone_between_any_two_writes(phone: World, forge: Forge, tmp_path: Path) -> None:
    """Nothing is tidied up behind it, and its lock is free."""
    letter, before, fresh = phone.letter(), files(phone.store), tmp_path / "fresh"
    shutil.copytree(phone.store, fresh)
    (tmp_path / "letter").write_bytes(letter)
    for place in range(1, 200):
        told = {"store": str(phone.store), "letter": str(tmp_path / "letter"), "place": place}
        code = forge.run(Order("tests.node.test_once:killed", told)).code
        assert code in (0, 9)
        whole(phone, before, letter)
        shutil.rmtree(phone.store)
        shutil.copytree(fresh, phone.store)
        if code == 0:
            break
    assert 8 < place < 199


# Rounds, attempts and posts


@pytest.mark.parametrize("round", [2**31 - 1, 4, -1, -(2**31)])
def test_a_round_that_cannot_be_does_not_lock_the_device_out(round: int, phone: World) -> None:
    before = files(phone.store)
    with pytest.raises(BadInput, match="less than nothing" if round < 0 else "and there are 4; send one"):
        node.answer(phone.store, phone.letter(round))
    assert files(phone.store) == before
    assert node.answer(phone.store, phone.letter(3))


def test_passes_bound_the_rounds_as_well(tmp_path: Path) -> None:
    """A device knows no other, and so its card says how many rounds a pass of all of them takes."""
    sets = ["model.name='FedMF'", "plan.passes=2", "plan.cohort=0.25", "plan.order='deal'"]
    engine, recipe = federation(sets)
    assert engine.last == 8
    node.provision(engine, CLIENT, recipe.toml(), tmp_path / "store")
    phone = World(engine, engine.start(), tmp_path / "store")
    with pytest.raises(BadInput, match="of round 9, and there are 8"):
        node.answer(phone.store, phone.letter(8))
    assert node.answer(phone.store, phone.letter(7))


def test_another_attempt_gets_the_same_bytes_and_a_later_letter_does_not(phone: World) -> None:
    reply = node.answer(phone.store, phone.letter(1, attempt=2))
    assert {node.answer(phone.store, phone.letter(1, attempt=n)) for n in (1, 2, 3, 999_999_999)} == {reply}
    assert node.ledger(phone.store)["rounds"][0]["attempt"] == 2
    with pytest.raises(BadInput, match="note 'attempt'"):
        phone.letter(1, attempt=0)
    assert node.answer(phone.store, phone.letter(2, attempt=2)) != reply


def test_a_repeat_writes_the_same_post_again(tmp_path: Path) -> None:
    """Also one that nobody wanted the first time; the ledger says when it left."""
    engine, recipe = federation(POSTING)
    who = int(engine.clients.consents["gender"][:, 0].nonzero()[0])
    store, posts = tmp_path / "store", [tmp_path / f"post {k}" for k in range(3)]
    node.provision(engine, who, recipe.toml(), store)
    letter = node.letter(engine, engine.start(), who)
    replies = [node.answer(store, letter)]
    assert not node.ledger(store)["rounds"][0]["posted"]
    replies += [node.answer(store, letter, post=post) for post in posts]
    assert len(set(replies)) == 1
    assert len({post.read_bytes() for post in posts}) == 1
    told = node.ledger(store)
    assert (told["answered"], told["rounds"][0]["posted"]) == (1, True)


def test_a_crash_before_the_post_leaves_it_to_the_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, recipe = federation(POSTING)
    who = int(engine.clients.consents["gender"][:, 0].nonzero()[0])
    store, post = tmp_path / "store", tmp_path / "post"
    node.provision(engine, who, recipe.toml(), store)
    letter = node.letter(engine, engine.start(), who)

    def fail(*arguments: Any, **rest: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("veilrec.node.acts.atomic", fail)
        with pytest.raises(Killed):
            node.answer(store, letter, post=post)
    assert not post.exists()
    first = node.answer(store, letter, post=post)
    there = post.read_bytes()
    post.unlink()
    assert node.answer(store, letter, post=post) == first
    assert post.read_bytes() == there


def test_an_answer_that_cannot_be_written_is_there_for_the_next(phone: World) -> None:
    """A full disk at the commit leaves the store as it was; a full output leaves the answer in it."""
    before = files(phone.store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base.Sink, "write", lambda self, data: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(BadInput, match=r"own\.safetensors: cannot be written"):
            node.answer(phone.store, phone.letter())
    assert files(phone.store) == before
    if Path("/dev/full").exists():
        with Path("/dev/full").open("wb") as full, pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdout", open(full.fileno(), "w", closefd=False))  # noqa: SIM115
            patch.setattr("veilrec.node.command._letter", lambda most: phone.letter())
            patch.setattr("veilrec.base.process._let_go", lambda stream: None)
            assert node.main([str(phone.store)]) == 2
        assert node.ledger(phone.store)["answered"] == 1


def test_a_store_that_has_answered_is_not_written_over(phone: World) -> None:
    """Its ledger would be forgotten; one that has not, or that a crash has left half, is."""
    recipe = (phone.store / node.RECIPE).read_text(encoding="utf-8")
    node.provision(phone.engine, CLIENT, recipe, phone.store)
    (phone.store / node.OWN).unlink()
    node.provision(phone.engine, CLIENT, recipe, phone.store)
    node.answer(phone.store, phone.letter())
    before = files(phone.store)
    with pytest.raises(BadInput, match="its ledger would be lost"):
        node.provision(phone.engine, CLIENT, recipe, phone.store)
    assert files(phone.store) == before


@pytest.mark.parametrize(("run", "others"), [("spring", ["", "autumn"]), ("", ["autumn"])])
def test_a_device_that_was_made_for_a_run_believes_no_first_letter(
    run: str, others: list[str], phone: World, tmp_path: Path
) -> None:
    recipe = (phone.store / node.RECIPE).read_text(encoding="utf-8")
    node.provision(phone.engine, CLIENT, recipe, tmp_path / "bound", run=run)
    for other in others:
        with pytest.raises(BadInput, match="of another run"):
            node.answer(tmp_path / "bound", node.letter(phone.engine, phone.state, CLIENT, run=other))
    assert node.answer(tmp_path / "bound", node.letter(phone.engine, phone.state, CLIENT, run=run))
    with pytest.raises(BadInput, match="a name of 1,025 bytes"):
        node.provision(phone.engine, CLIENT, recipe, tmp_path / "long", run="x" * 1025)


def test_letters_of_three_rounds_are_three(phone: World) -> None:
    first, second, third = letters(phone.engine, phone.state)
    replies = [node.answer(phone.store, letter) for letter in (first, third)]
    assert node.answer(phone.store, third) == replies[1]
    with pytest.raises(BadInput, match="has answered round 1, and not this letter last"):
        node.answer(phone.store, first)
    replies.append(node.answer(phone.store, second))
    assert len(set(replies)) == 3
    assert [row["round"] for row in node.ledger(phone.store)["rounds"]] == [1, 3, 2]
    assert torch.equal(phone.state.server["item"], phone.engine.start().server["item"])
