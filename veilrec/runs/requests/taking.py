"""Taking: a request to a finished run is checked, written down, and then done exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilrec.base.locks import WAIT, locked
from veilrec.errors import BadInput
from veilrec.runs.integrity.changes import changing, settle
from veilrec.runs.integrity.manifest import DONE, Manifest
from veilrec.runs.requests.applying import Make, Prepared, Reopened, apply, prepare, remembered
from veilrec.runs.requests.choosing import KnownUsers
from veilrec.runs.requests.orders import PENDING, UnlearnOrder, done_before
from veilrec.runs.requests.telling import now

__all__ = ["Taken", "take"]


@dataclass(frozen=True)
class Taken:
    """What came of a request.

    Attributes:
        receipt: What was asked and done; None where all of it was done before.
        finished: The receipt of one that was taken before, and done only now.
    """

    receipt: dict[str, Any] | None
    finished: dict[str, Any] | None = None


def take(
    folder: Path,
    order: UnlearnOrder | None,
    reopen: Callable[[], Reopened],
    make: Make,
    tell: Callable[[str], None],
) -> Taken:
    """Take a request to a run and do it; one that was cut off on the way is done first.

    Args:
        folder: The run.
        order: The request; None for no other than one that was cut off.
        reopen: Opens the run as it is.
        make: Makes the eraser of a name.
        tell: Called once the request is on the disk: from then on it will be done, whatever happens.

    Raises:
        BadInput: Where it cannot be right; nothing is changed then.
    """
    with locked(folder, WAIT):
        Manifest.load(folder)  # or there is nothing to forget
        settle(folder)
        finished = None
        if (pending := UnlearnOrder.pending(folder)) is not None:
            opened = reopen()
            finished = _done(folder, _taken(folder, pending, opened, make), opened)
        if order is None and finished is not None:
            return Taken(finished, finished)
        if order is None or not order.attributes:
            raise BadInput("--attribute", "nothing is named", "say what shall be forgotten, as in gender")
        opened = reopen()
        before = done_before(Manifest.load(folder))
        _check_names(order, opened)
        left = order.left(before, opened.run.data.user_ids)
        if left is None:
            return Taken(None, finished)
        prepared = prepare(replace(left, at=now()), opened, make)
        prepared.order.write(folder)
        tell("the request is written down and will be done, whatever happens from now on")
        return Taken(_done(folder, prepared, opened), finished)


def _taken(folder: Path, pending: UnlearnOrder, opened: Reopened, make: Make) -> Prepared:
    """A request that was taken before; where it cannot be done after all, which file has to go is said."""
    try:
        return prepare(pending, opened, make)
    except BadInput as why:
        what = f"the request that was taken before cannot be done: {str(why).partition(';')[0]}"
        raise BadInput(folder / PENDING, what, "remove that file, and ask again in another way") from why


def _check_names(order: UnlearnOrder, opened: Reopened) -> None:
    """Refuse somebody whom the run does not know, also where nothing is left to be done."""
    data = opened.run.data
    if order.users is not None:
        KnownUsers(data.user_ids, {}, {}).places(order.users)


def _done(folder: Path, prepared: Prepared, opened: Reopened) -> dict[str, Any]:
    """Do it in one change, with which it is no longer pending."""
    with changing(folder) as new:
        receipt = apply(new, prepared, opened)
        new.write_json(DONE, remembered(done_before(new.before), prepared.order), secret=True, indent=None)
        new.drop(PENDING)
    return receipt
