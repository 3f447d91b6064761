"""The store: a folder with one device's data, weights, last answer and ledger, and nothing of anybody else.

Its recipe and its card never change. All that does lies in one file with a seal, a hash of everything in the
store: whatever was not written together is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.base import tensors
from veilrec.base.files import atomic, reading
from veilrec.base.params import Params
from veilrec.base.plain import check_file
from veilrec.errors import BadInput, Corrupted
from veilrec.node import contents

__all__ = ["CARD", "OWN", "RECIPE", "VERSION", "Card", "NodeStore", "begin"]

RECIPE, CARD, OWN = "recipe.toml", "node.json", "own.safetensors"
VERSION = 3  # of a store; those before it had no ledger
SEAL = "seal"  # a hash of all else
TEXT = 16 << 20  # bytes of recipe and card, at most each
ITEMS, PEOPLE, ROUNDS = 1 << 24, 1 << 31, (1 << 31) - 1
FIX = "restore the store, or provision a new one"


@dataclass(frozen=True, kw_only=True)
class Card:
    """The facts that a device knows of its federation, and the names of what it knows of its user.

    Attributes:
        user: The name of the client.
        items: How many items there are.
        people: How many users there are, of whom each may post.
        rounds: How many rounds there will be at most.
        features: Names of the columns of the user's features.
        classes: The names of each attribute's classes, where they have any.
    """

    user: str
    items: int
    people: int
    rounds: int
    features: list[str]
    classes: dict[str, list[str]]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Card:
        """The card in a JSON object.

        Raises:
            ValueError: Where it is none.
        """
        if told.keys() != {one.name for one in fields(cls)} | {"version"}:
            raise ValueError("its entries are not those of a card")
        if not isinstance(told["user"], str):
            raise ValueError("its user is no name")
        for name, most in (("items", ITEMS), ("people", PEOPLE), ("rounds", ROUNDS)):
            if type(told[name]) is not int or not 1 <= told[name] <= most:
                raise ValueError(f"{name} is no number from 1 to {most:,}")
        classes = told["classes"]
        if not isinstance(classes, dict) or not all(map(_texts, [told["features"], *classes.values()])):
            raise ValueError("its features or classes are no lists of names")
        return cls(**{one.name: told[one.name] for one in fields(cls)})


@dataclass(frozen=True)
class NodeStore:
    """A store that was read, and holds what it says.

    Attributes:
        folder: Where it lies.
        card: The facts that never change.
        recipe: The text of its recipe.
        own: All that changes, by name.
        begins: A hash of recipe and card.
    """

    folder: Path
    card: Card
    recipe: str
    own: Params
    begins: bytes

    @classmethod
    def open(cls, folder: Path) -> NodeStore:
        """Read a store.

        Raises:
            BadInput: Where the folder is no store, or one of another version.
            Corrupted: Where something in it is not what it was, or cannot be.
        """
        if not (folder / CARD).is_file():
            raise BadInput(folder, "is no device's store", f"give the folder that holds {CARD}")
        texts = {name: _text(folder / name) for name in (RECIPE, CARD)}
        told = _json(folder / CARD, texts[CARD])
        if told.get("version") != VERSION:
            raise BadInput(folder, "a store of another version", "provision a new one")
        own, begins = _own(folder / OWN), _hash(texts)
        seal = own.pop(SEAL, None)
        if seal is None or not torch.equal(seal, _seal(begins, own)):
            what = f"does not go with {RECIPE}, {CARD} and its own seal"
            raise Corrupted(f"{folder / OWN}: {what}; {FIX}")
        card = _card(folder / CARD, told)
        contents.check(own, card.items, card.rounds, card.classes, len(card.features), folder / OWN)
        return cls(folder, card, str(texts[RECIPE], "utf-8"), own, begins)

    def save(self, own: Params) -> None:
        """Put all that changes in the place of what was there: a crash leaves the one or the other, whole."""
        _write(self.folder, self.begins, own)


def begin(folder: Path, card: Card, recipe: str, own: Params) -> None:
    """Write a store that was not there; one that is cut short here is not taken for one."""
    head = {"version": VERSION} | {one.name: getattr(card, one.name) for one in fields(card)}
    texts = {RECIPE: recipe.encode(), CARD: (json.dumps(head, indent=2, ensure_ascii=False) + "\n").encode()}
    for name, text in texts.items():
        with atomic(folder / name, secret=name == CARD) as file:
            file.write(text)
    _write(folder, _hash(texts), own)


def _write(folder: Path, begins: bytes, own: Params) -> None:
    tensors.write(folder / OWN, {**own, SEAL: _seal(begins, own)}, secret=True)


def _seal(begins: bytes, own: Params) -> Tensor:
    return torch.tensor(list(hashlib.sha256(begins + tensors.hashed(own)).digest()), dtype=torch.uint8)


def _hash(texts: Mapping[str, bytes]) -> bytes:
    each = [hashlib.sha256(texts[name]).digest() for name in (RECIPE, CARD)]
    return hashlib.sha256(b"".join(each)).digest()


def _own(path: Path) -> Params:
    """All that changes, from a plain file: of a pipe there would be no end."""
    try:
        check_file(path)
        return tensors.read(path)
    except OSError as cause:
        raise Corrupted(f"{path}: {cause.strerror}; {FIX}") from cause


def _text(path: Path) -> bytes:
    """All bytes of a small file of the store."""
    try:
        with reading(path) as file:
            text = file.read(TEXT + 1)
        str(text, "utf-8")
    except (OSError, ValueError) as cause:
        why = cause.strerror if isinstance(cause, OSError) else cause
        raise Corrupted(f"{path}: cannot be read ({why}); {FIX}") from cause
    if len(text) > TEXT:
        raise Corrupted(f"{path}: has more than {TEXT:,} bytes; {FIX}")
    return text


def _json(path: Path, text: bytes) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise Corrupted(f"{path}: cannot be read as JSON ({cause}); {FIX}") from cause
    if not isinstance(told, dict):
        raise Corrupted(f"{path}: no JSON object; {FIX}")
    return told


def _card(path: Path, told: Mapping[str, Any]) -> Card:
    try:
        return Card.of(told)
    except ValueError as cause:
        raise Corrupted(f"{path}: {cause}; {FIX}") from cause


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
