"""Orders: requests to a run as they are written down, before anybody is told that they were taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from veilrec.base.files import read_json, write_json
from veilrec.base.limits.schema import Wrong, anything, flag, listed, one_of, or_none, table, text, texts
from veilrec.errors import BadInput, Corrupted
from veilrec.runs.integrity.manifest import DONE, Manifest
from veilrec.runs.requests.choosing import AUTO

__all__ = ["KEEPABLE", "PENDING", "UnlearnOrder", "done_before", "is_pending"]

PENDING = "request.json"  # there from when a request is taken until it is done
VERSION, MANY = 1, 1 << 31
KEEPABLE = ("checkpoint", "transcript", "reports")
NAMES = texts(1 << 10)
SHAPE = {
    "attributes": NAMES,
    "users": or_none(texts(MANY)),
    "lenders": or_none(texts(MANY)),
    "method": text(200),
    "copies": flag,
    "keeps": listed(one_of(*KEEPABLE)),
    "keeps_labels": flag,
    "audits": flag,
    "at": text(64),
}
ENTRY = table(SHAPE, rest=anything)


@dataclass(frozen=True)
class UnlearnOrder:
    """A request to make a run forget.

    Attributes:
        attributes: What shall be forgotten.
        users: The ids of who asks; None for everybody.
        lenders: The ids of those from whom an eraser may learn that needs no label of those who ask.
        method: The name of an eraser, or `AUTO`.
        copies: Whether somebody may have the vectors as they were.
        keeps: Which of `KEEPABLE` are not purged.
        keeps_labels: Whether the run goes on knowing the classes of those who ask.
        audits: Whether attackers look at it before and after, for the receipt.
        at: The time at which it was taken.
    """

    attributes: Sequence[str]
    users: Sequence[str] | None = None
    lenders: Sequence[str] | None = None
    method: str = AUTO
    copies: bool = False
    keeps: Sequence[str] = ()
    keeps_labels: bool = False
    audits: bool = False
    at: str = ""

    def write(self, folder: Path) -> None:
        """Bring it to the disk, for the owner only: from now on it will be done, whatever happens."""
        write_json(folder / PENDING, {"version": VERSION, **asdict(self)}, secret=True)

    @classmethod
    def pending(cls, folder: Path) -> UnlearnOrder | None:
        """The one that was taken and is not done, if there is one.

        Raises:
            Corrupted: Where it is not what `write` has written.
        """
        path = folder / PENDING
        if not is_pending(folder):
            return None
        told = read_json(path, MANY)
        if (version := told.pop("version", None)) != VERSION:
            raise BadInput(path, f"written as version {version}", f"this veilrec reads version {VERSION}")
        return cls.of(told, path)

    @classmethod
    def of(cls, told: Mapping[str, Any], path: Path) -> UnlearnOrder:
        """The reverse of `told`."""
        try:
            ENTRY(told, "")
        except Wrong as wrong:
            raise Corrupted(f"{path}: {wrong}; restore the file") from wrong
        return cls(**{name: told[name] for name in SHAPE})

    def told(self) -> dict[str, Any]:
        """What the run remembers of it: a request that comes again is known."""
        return asdict(self)

    def left(self, before: Sequence[UnlearnOrder], everybody: Collection[str]) -> UnlearnOrder | None:
        """What of it was not asked for before; None where all of it was.

        Raises:
            BadInput: Where that differs from one attribute to another.
        """
        asks = list(everybody if self.users is None else dict.fromkeys(self.users))
        found: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(self.attributes):
            served = [one.users for one in before if name in one.attributes]
            if None in served:
                continue
            known = {user for users in served if users is not None for user in users}
            if new := tuple(user for user in asks if user not in known):
                found[name] = new
        if len(set(found.values())) > 1:
            what = "some who ask have asked for one of them before"
            raise BadInput("--attribute", what, "ask for one attribute at a time")
        if not found:
            return None
        users = next(iter(found.values()))
        all_of_them = self.users is None and len(users) == len(everybody)
        return replace(self, attributes=tuple(found), users=None if all_of_them else users)


def is_pending(folder: Path) -> bool:
    """Whether a request was taken that is not done yet."""
    return (folder / PENDING).exists()


def done_before(manifest: Manifest) -> list[UnlearnOrder]:
    """The requests that were done on a run, in their order."""
    if DONE not in manifest.files:
        return []
    path = manifest.path(DONE)
    return [UnlearnOrder.of(entry, path) for entry in read_json(path, MANY).get("requests", [])]
