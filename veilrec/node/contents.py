"""Contents of a store: the names, types, lengths and ranges of all that a device keeps, by one schema.

Weights under ``own/`` are held against the model, once that is known (`weights`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch

from veilrec.base.params import KEPT, ROW, Params, under
from veilrec.errors import BadInput, Corrupted
from veilrec.wire import codec
from veilrec.wire.codec import Spec

__all__ = [
    "ANSWER",
    "ASKED",
    "ATTEMPT",
    "DATA",
    "LETTER",
    "LONGEST",
    "MISSED",
    "POST",
    "POSTED",
    "QUESTION",
    "REPLY",
    "ROUND",
    "RUN",
    "SEEDED",
    "UNITS",
    "WEIGHTS",
    "check",
    "weights",
]

WEIGHTS = "own/"
DATA = ("item", "rating", "time", "features", "attribute/", "value/", "consent/")  # of the user
RUN = "run"  # the name of the only run that is answered, empty where letters name none; there early or late
SEEDED = "seeded"  # how a store's noise was drawn; this and what follows is there from the first answer on
ANSWER, QUESTION = "answer/", "question/"  # the latest ones
LETTER, REPLY, POST = "letter", "reply", "post"  # of each: a hash of what was answered, and bytes that left
ROUND, ATTEMPT = "ledger/round", "ledger/attempt"  # of each answer
UNITS, MISSED, POSTED = "ledger/units", "ledger/missed", "ledger/posted"
ASKED = "ledger/asked"  # how many questions
NUMBERS = (torch.float32, torch.float64, torch.int64)
HASH = 32  # bytes
LONGEST = 1 << 10  # bytes of the name of a run


def check(
    own: Params, items: int, rounds: int, classes: Mapping[str, Sequence[str]], features: int, where: Path
) -> None:
    """Refuse a store that holds what it cannot have: anything but the weights is judged.

    Raises:
        Corrupted: With the name of the file.
    """
    found = {name: _known(name, value) for name, value in own.items() if not name.startswith(WEIGHTS)}
    schema = _data(found, items, classes, features)
    if RUN in found:
        schema[RUN] = _bytes(found, RUN)
    if SEEDED in found:
        schema |= _answers(found)
    try:
        codec.check({**found}, schema, sender="store")
        if SEEDED in found:
            _check_ledger(found, rounds)
        if RUN in found and (own[RUN].numel() > LONGEST or not _is_text(own[RUN])):
            raise BadInput("store", "a run whose name is no text")
        if bool((found["item"] < 0).any()):
            raise BadInput("store", "an event of no item")
    except BadInput as cause:
        raise Corrupted(f"{where}: {cause}; restore the store, or provision a new one") from cause


def weights(own: Params, fresh: Params, items: int, where: Path) -> None:
    """Refuse weights that are not the model's, or not finite; those missing are as they began.

    Args:
        own: By name, as the store has them, without the prefix.
        fresh: What devices begin with, ``[1, …]``.
        items: How many items there are.
        where: The file.

    Raises:
        Corrupted: With the name of the file.
    """
    kept = len(own[ROW]) if ROW in own and own[ROW].dim() == 1 else 0
    schema = {name: _weight(name, fresh[name][0], kept, items) for name in own if name in fresh}
    together = {name for name in fresh if name.startswith(KEPT)}
    try:
        if together & own.keys() and together - own.keys():
            raise BadInput("store", "rows without their numbers, or with some of their values missing")
        codec.check({**own}, schema, sender="store")
        if ROW in own and not bool((own[ROW] >= 0).all() and (own[ROW].diff() > 0).all()):
            raise BadInput("store", "numbers of rows that do not ascend")
    except BadInput as cause:
        raise Corrupted(f"{where}: {cause}; restore the store, or provision a new one") from cause


def _weight(name: str, fresh: torch.Tensor, kept: int, items: int) -> Spec:
    """The shape is the one that a weight began with; of what is kept row by row, as many rows as numbers."""
    shape = (kept, *fresh.shape[1:]) if name.startswith(KEPT) else tuple(fresh.shape)
    return Spec(shape, fresh.dtype, below=items if name == ROW else None)


def _data(own: Params, items: int, classes: Mapping[str, Sequence[str]], features: int) -> dict[str, Spec]:
    """The schema of what a device knows of its user; columns that are not there are not asked for."""
    n = own["item"].numel() if "item" in own else 0
    schema = {"item": Spec((n,), torch.int64, kind="items", below=items)}
    schema |= {name: _one_of(own, name, (n,), NUMBERS) for name in ("rating", "time") if name in own}
    if "features" in own:
        width = features or own["features"].numel()
        schema["features"] = _one_of(own, "features", (width,), (torch.float32, torch.float64))
    for name, known in classes.items():
        schema[f"attribute/{name}"] = Spec((), torch.int64, below=len(known) or None)
        schema[f"consent/{name}"] = Spec((), torch.bool)
    return schema | {f"value/{name}": Spec((), torch.float64) for name in under(own, "value/")}


def _known(name: str, value: torch.Tensor) -> torch.Tensor:
    """A value as it is judged: a continuous attribute may be NaN, which says that it is not known."""
    unknown = name.startswith("value/") and value.is_floating_point()
    return torch.where(value.isnan(), 0, value) if unknown else value


def _one_of(own: Params, name: str, shape: tuple[int, ...], dtypes: Collection[torch.dtype]) -> Spec:
    dtype = own[name].dtype
    return Spec(shape, dtype if dtype in dtypes else next(iter(dtypes)))


def _answers(own: Params) -> dict[str, Spec]:
    """The schema of what there is from the first answer on: in the ledger, an entry for each round."""
    n = own[ROUND].numel() if ROUND in own else 0
    charges = own[UNITS].shape[-1] if UNITS in own and own[UNITS].dim() else 0
    schema = {
        SEEDED: Spec((), torch.bool),
        RUN: _bytes(own, RUN),
        ANSWER + LETTER: Spec((HASH,), torch.uint8),
    }
    schema |= {name: Spec((n,), torch.int64, kind="count") for name in (ROUND, ATTEMPT)}
    schema |= {name: Spec((n,), torch.bool) for name in (MISSED, POSTED)}
    schema[UNITS] = Spec((n, charges), torch.int64, kind="count")
    schema[ASKED] = Spec((), torch.int64, kind="count")
    schema[ANSWER + REPLY] = _bytes(own, ANSWER + REPLY)
    if ANSWER + POST in own:
        schema[ANSWER + POST] = _bytes(own, ANSWER + POST)
    if QUESTION + LETTER in own:
        schema[QUESTION + LETTER] = Spec((HASH,), torch.uint8)
        schema[QUESTION + REPLY] = _bytes(own, QUESTION + REPLY)
    return schema


def _bytes(own: Params, name: str) -> Spec:
    return Spec((own[name].numel() if name in own else 0,), torch.uint8)


def _check_ledger(own: Params, rounds: int) -> None:
    """Each round is there once, and there is at least one."""
    round = own[ROUND]
    if not len(round) or int(round.max()) >= rounds or len(round.unique()) < len(round):
        raise BadInput("store", f"a ledger whose rounds are not each there once, from 1 to {rounds}")
    if not bool((own[ATTEMPT] > 0).all()):
        raise BadInput("store", "a ledger with an attempt before the first")


def _is_text(value: torch.Tensor) -> bool:
    try:
        bytes(value.tolist()).decode()
    except UnicodeDecodeError:
        return False
    return True
