"""Bare vectors: a request that is carried out on anyone's file, of which a new one is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.files import Digest, digest
from veilrec.errors import BadInput
from veilrec.interactions import id_hashes
from veilrec.lab.attributes import Described
from veilrec.lab.match_ids import matched
from veilrec.lab.originals.original import Original
from veilrec.lab.trials import People
from veilrec.runs.requests.choosing import Choice, KnownUsers
from veilrec.runs.requests.looking import bare_receipt
from veilrec.runs.requests.telling import done_of, is_not, notes_of, now

__all__ = ["LOTS", "Erased", "erase", "people_of", "told"]

LOTS = ".lots"  # behind the name of the new file: what was drawn, until that is there


@dataclass(frozen=True)
class Erased:
    """Vectors after a request.

    Attributes:
        table: ``[rows, width]``, in the type of the file.
        changed: ``[rows]`` whose vector is another one.
        written: The checksum of the new file.
    """

    table: Tensor
    changed: Tensor
    written: Digest


def people_of(original: Original, described: Described, *, by_position: bool = False) -> KnownUsers:
    """All users of a file in its own order; of those without a row among the attributes nothing is known.

    Raises:
        BadInput: Where ids are missing or do not fit.
    """
    ids, _, there = matched(original.vectors, described, by_position=by_position)
    rows = torch.tensor([there.get(name, -1) for name in ids])
    labels = {}
    for name, attribute in described.labels.items():
        codes = torch.from_numpy(attribute.codes).long()
        labels[name] = torch.where(rows >= 0, codes[rows.clamp(min=0)], -1)
    return KnownUsers(ids, labels, {name: one.classes for name, one in described.labels.items()})


def erase(original: Original, choice: Choice, place: Path) -> Erased:
    """Carry a request out: the vectors of those who ask into a new file, with all others as they were.

    What was drawn lies beside the new file until that is on the disk, for its owner only: done again after a
    crash, nothing is drawn anew.
    """
    lots = place.with_name(place.name + LOTS)
    draws = Draws.at(lots, original.table) if choice.eraser.secret else Draws()
    table = choice.eraser.forget(original.table, choice.request, draws)
    stays = ~choice.eraser.moved(choice.request)
    if not torch.equal(table[stays], original.table[stays]):
        raise BadInput("--method", "changed somebody who does not ask", "choose another eraser")
    written = original.write(place, table)
    draws.remove()
    return Erased(table, (table != original.table).any(1), written)


def told(
    original: Original, choice: Choice, erased: Erased, place: Path, audited: KnownUsers | None = None
) -> dict[str, Any]:
    """The receipt of a request: what was asked, what was done on which bytes, and what attackers find.

    They look only where the users are given that were `audited`, and what is known of them.
    """
    before = digest(original.path)
    copies = [f"{original.path.name} holds the vectors as they were: remove all copies"]
    if choice.eraser.secret:
        copies.append("erase the same originals only once: two files with other draws tell more than one")
    facts = {
        "asked": {
            "attributes": list(choice.request.labels),
            "users": "all" if choice.request.asks is None else int(choice.request.moves.sum()),
            "at": now(),
        },
        "done": done_of(choice, erased.changed),
        "files": {
            "before": {"file": original.path.name, "sha256": before.sha256},
            "after": {"file": place.name, "sha256": erased.written.sha256},
        },
        "notes": [*notes_of(choice), *copies],
        "is_not": is_not(choice.request.labels),
    }
    if audited is None:
        return facts
    people = People(audited.labels, id_hashes(audited.ids), audited.classes, asks=choice.request.asks)
    return bare_receipt(original.table, erased.table, people, choice, facts)
