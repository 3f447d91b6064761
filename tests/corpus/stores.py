"""Stores of devices that are bad: damaged, swapped, put together by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor

from tests.corpus import NODE, Case, Command
from tests.corpus.stock import Stock
from veilrec import node
from veilrec.base.params import Params
from veilrec.node import contents
from veilrec.node.store import CARD, OWN, RECIPE, NodeStore

__all__ = ["CASES", "FORGED"]

Change = Callable[[Path, Stock], object]
SEAL = "and its own seal"


def damaged(change: Change, *, answered: bool = False) -> Callable[[Path, Stock], Command]:
    """A store that something has happened to; the letter is a good one."""

    def case(folder: Path, stock: Stock) -> Command:
        place = stock.store(folder / "store")
        if answered:
            node.answer(place, stock.letter())
        change(place, stock)
        return Command("store", program=NODE, stdin=stock.letter(int(answered)))

    return case


def forged(change: Callable[[Params], object]) -> Callable[[Path, Stock], Command]:
    """A store that has answered, with other contents under a new seal."""

    def written(place: Path, stock: Stock) -> None:
        store = NodeStore.open(place)
        own = dict(store.own)
        change(own)
        store.save(own)

    return damaged(written, answered=True)


def flipped(name: str, place: int) -> Change:
    def change(store: Path, stock: Stock) -> None:
        data = bytearray((store / name).read_bytes())
        data[place] ^= 1
        (store / name).write_bytes(data)

    return change


def cut(name: str, keep: float) -> Change:
    def change(store: Path, stock: Stock) -> None:
        data = (store / name).read_bytes()
        (store / name).write_bytes(data[: int(len(data) * keep)])

    return change


def card(**told: Any) -> Change:
    """Another card; it is judged before the seal is looked at only where it has another version."""

    def change(store: Path, stock: Stock) -> None:
        found = json.loads((store / CARD).read_text(encoding="utf-8")) | told
        (store / CARD).write_text(json.dumps(found), encoding="utf-8")

    return change


def written(name: str, text: bytes) -> Change:
    return lambda store, stock: (store / name).write_bytes(text)


def recipe(store: Path, stock: Stock) -> None:
    text = (store / RECIPE).read_text(encoding="utf-8")
    (store / RECIPE).write_text(text.replace("0.05", "0.06"), encoding="utf-8")


def swapped(store: Path, stock: Stock) -> None:
    (store / OWN).write_bytes((stock.poster(store.parent / "other") / OWN).read_bytes())


def pipe(store: Path, stock: Stock) -> None:
    if not hasattr(os, "mkfifo"):
        raise SkipTest("needs pipes with names")
    (store / OWN).unlink()
    os.mkfifo(store / OWN)


def linked(name: str) -> Change:
    def change(store: Path, stock: Stock) -> None:
        (store / name).unlink(missing_ok=True)
        (store.parent / "elsewhere").write_bytes(b"not yours")
        (store / name).symlink_to(store.parent / "elsewhere")

    return change


def put(name: str, value: Tensor | None) -> Callable[[Params], object]:
    return lambda own: own.pop(name) if value is None else own.update({name: value})


def text(data: bytes) -> Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


VECTOR = contents.WEIGHTS + "user"
FORGED: Mapping[str, tuple[Callable[[Params], object], str]] = {
    "no events": (put("item", None), "item"),
    "an item that is not there": (put("item", torch.tensor([1, 2, 40])), "a number beyond"),
    "an item below zero": (put("item", torch.tensor([-1, 2, 3])), "an event of no item"),
    "items as fractions": (put("item", torch.tensor([1.0, 2.0])), "is torch.float32"),
    "a class that is not there": (put("attribute/gender", torch.tensor(9)), "a number beyond"),
    "consent in words": (put("consent/gender", text(b"yes")), "has shape"),
    "ages of many": (put("value/age", torch.zeros(3, dtype=torch.float64)), "has shape"),
    "a vector that is no number": (put(VECTOR, torch.full((1, 4), float("nan"))), "not finite"),
    "a vector too wide": (put(VECTOR, torch.zeros(1, 5)), "has shape"),
    "a vector in double": (put(VECTOR, torch.zeros(1, 4).double()), "is torch.float64"),
    "weights of another model": (put(contents.WEIGHTS + "gru", torch.zeros(3)), "gru"),
    "something else": (put("secret", torch.zeros(3)), "secret"),
    "no ledger": (lambda own: [own.pop(n) for n in [*own] if n.startswith("ledger/")], "ledger"),
    "a ledger without rounds": (put(contents.ROUND, torch.zeros(0, dtype=torch.int64)), "ledger|shape"),
    "a round after the last": (put(contents.ROUND, torch.tensor([3])), "not each there once"),
    "a round below zero": (put(contents.ROUND, torch.tensor([-1])), "less than nothing"),
    "attempt 0": (put(contents.ATTEMPT, torch.tensor([0])), "attempt before the first"),
    "costs of other mechanisms": (put(contents.UNITS, torch.ones(1, 3, dtype=torch.int64)), "3 charges"),
    "a cost below zero": (put(contents.UNITS, torch.tensor([[-8]])), "less than nothing"),
    "more questions than none": (put(contents.ASKED, torch.tensor(-1)), "less than nothing"),
    "an answer without its letter": (put(contents.ANSWER + contents.LETTER, None), "answer/letter"),
    "a hash too short": (put(contents.ANSWER + contents.LETTER, text(b"short")), "has shape"),
    "an answer in floats": (put(contents.ANSWER + contents.REPLY, torch.zeros(9)), "is torch.float32"),
    "a run that is no text": (put(contents.RUN, text(b"\xff\xfe")), "no text"),
    "noise of three kinds": (put(contents.SEEDED, torch.tensor([True, False])), "has shape"),
}
DAMAGED: Mapping[str, tuple[Change, str]] = {
    "a bit of its weights": (flipped(OWN, -5), SEAL),
    "a bit of its header": (flipped(OWN, 20), "own.safetensors"),
    "a bit of its recipe": (flipped(RECIPE, 9), SEAL),
    "a bit of its card": (flipped(CARD, 30), f"{SEAL}|JSON|read|another version"),
    "cut to half": (cut(OWN, 0.5), "own.safetensors"),
    "cut to nothing": (cut(OWN, 0.0), "own.safetensors"),
    "half a card": (cut(CARD, 0.5), "JSON"),
    "an edited recipe": (recipe, SEAL),
    "a card of a thousand million items": (card(items=10**9), SEAL),
    "a card of another user": (card(user="somebody else"), SEAL),
    "a card 100,000 lists deep": (written(CARD, b"[" * 100_000), "JSON"),
    "a card that is a list": (written(CARD, b"[]"), "no JSON object"),
    "a card that is no text": (written(CARD, b"\xff\xfe\x00"), "cannot be read"),
    "a recipe that is no text": (written(RECIPE, b"\xff\xfe\x00"), "cannot be read"),
    "20 MB of recipe": (written(RECIPE, b"#" * (20 << 20)), "bytes"),
    "no recipe": (lambda store, stock: (store / RECIPE).unlink(), "recipe.toml"),
    "no weights": (lambda store, stock: (store / OWN).unlink(), "own.safetensors"),
    "what is another device's": (swapped, SEAL),
    "a pipe for weights": (pipe, "own.safetensors"),
    "weights that are elsewhere": (linked(OWN), "own.safetensors"),
    "a folder for weights": (
        lambda store, stock: ((store / OWN).unlink(), (store / OWN).mkdir()),
        "own.safetensors",
    ),
}
CASES = [
    *(Case(f"folder: a device's store, {n}", damaged(make), 4, says) for n, (make, says) in DAMAGED.items()),
    *(Case(f"folder: a forged store, {n}", forged(make), 4, says) for n, (make, says) in FORGED.items()),
    Case("folder: a store of before", damaged(card(version=2)), 2, "another version"),
    Case("folder: a store without a card", damaged(lambda s, _: (s / CARD).unlink()), 2, "no device's store"),
    Case("folder: a store whose lock is a link", damaged(linked("lock")), 2, "lock"),
]
