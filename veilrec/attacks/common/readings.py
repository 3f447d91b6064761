"""Readings: what an attacker makes of the uploads before any learning, one row of numbers per user.

Papers: APM §3.3 (updates), PARD §II-B (parameters), Aegis §2.2 and FedAU² §5.1 (embeddings).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.attack import GRANTS, Public, Seen
from veilrec.attacks.common.changes import changes, loss
from veilrec.attacks.common.recovered import recover
from veilrec.attacks.common.recovered import refusal as not_recovered
from veilrec.attacks.common.sketch import Sketch
from veilrec.attacks.common.uploaded import federation, items_of, spread, touches, users_of
from veilrec.base.params import Rows, part_of
from veilrec.errors import BadInput, nearest
from veilrec.wire.uploads import Exchange

__all__ = ["READINGS", "Reading", "covered", "parts_of", "read"]

NO_VECTOR = 'no user vector is uploaded; grant "user_vectors", or read "updates"'
NO_LISTS = 'nobody was shown the lists; grant "lists", or read "updates"'
NO_FORMER = 'no vectors from before an erasure are kept; read "embeddings", or give both as bare vectors'
GIVEN = ("embeddings", "lists", "difference")  # what an outsider may hold who saw no upload
BROAD = 1024  # columns of a profile, which is sparse and suffers more from folding than updates do


class Reading(NamedTuple):
    """Features of every user; a user of whom nothing was seen has zeros and is not `covered`.

    Attributes:
        features: ``[users, kept]``.
        width: Columns before folding.
        loss: Median relative error that folding brought to distances between users; 0 without folding.
        blank: Users who uploaded, and whose upload holds nothing to read.
    """

    features: Tensor
    width: int
    loss: float
    blank: int = 0

    def notes(self) -> dict[str, Any]:
        """Facts that a table prints beside the scores."""
        kept = self.features.shape[1]
        told: dict[str, Any] = {"width": self.width, "kept": kept}
        if self.loss:
            told["loss"] = f"distances between users kept within {self.loss:.1%} (median)"
        if self.blank:
            told["blank"] = self.blank
        return told


def read(seen: Seen, name: str, parts: Sequence[str] = (), columns: int = 128) -> Reading:
    """One of `READINGS`, made once for whoever asks.

    Raises:
        BadInput: Where the uploads do not hold what it needs, and nothing is granted in its place.
    """
    grants = {grant for grant in GRANTS if getattr(seen.granted, grant) is not None}
    if name not in GIVEN and (why := refusal(federation(seen), grants, name, parts)):
        raise BadInput("attack.reads", *why.split("; ", 1))
    return seen.cached((name, tuple(parts), columns), lambda: READINGS[name](seen, parts, columns))


def refusal(public: Public, grants: Collection[str], name: str, parts: Sequence[str]) -> str:
    """The reason why a reading cannot be made of a federation's uploads, whatever they hold; or ""."""
    if name in ("withheld", "lists"):
        return _kept_back(public, grants, name, parts)
    uploaded = {part_of(n): spec for n, spec in public.weights.items()}
    if missing := [part for part in parts if part not in uploaded]:
        return f'no part "{missing[0]}" is uploaded; {nearest(missing[0], uploaded)}'
    if name == "recovered":
        return not_recovered(public, parts)
    if name == "difference":
        return NO_FORMER  # by no run
    if name == "embeddings":
        held = "user_vectors" in grants or bool(_rows_of_users(public, parts))
        return "" if held else NO_VECTOR
    if not uploaded:
        return "nothing that is uploaded is a weight of the model; attack with one that reads what is"
    if public.seats.shape[1] > 1:
        return f'{name} of a silo are those of all its users together; read "embeddings"'
    tables = any(spec.table for spec in uploaded.values())
    return "" if tables or name == "updates" else f'{name} need an item table; read "updates"'


def _kept_back(public: Public, grants: Collection[str], name: str, parts: Sequence[str]) -> str:
    """The reason why lists, or the vectors that devices withhold, cannot be read; or ""."""
    if name == "lists" and name not in grants:
        return NO_LISTS
    if name == "lists":
        return "lists are read as a whole; name no parts" if parts else ""
    if "withheld" not in grants:
        return 'what is withheld is not uploaded; grant "withheld", or read "updates"'
    if not public.withheld:
        return 'no device keeps anything with a row per user; read "embeddings"'
    return "what is withheld is read as a whole; name no parts" if parts else ""


def covered(seen: Seen) -> Tensor:
    """``[users]`` True for whom the attacker has seen, or was granted, anything."""

    def look() -> Tensor:
        if seen.public is None:
            held = seen.granted
            rows = next(one for one in (held.user_vectors, held.lists) if one is not None)
            return torch.ones(len(rows), dtype=torch.bool)
        there = torch.zeros(seen.public.n_users, dtype=torch.bool)
        for exchange in seen.probe(()):
            there[users_of(seen.public, exchange)] = True
        return there

    return seen.cached("covered", look)


def parts_of(seen: Seen) -> list[str]:
    """The parts of the model that are uploaded, in the order of the model."""
    public = federation(seen)
    uploaded = {part_of(name) for name in public.weights}
    return [part for part in public.model.parts if part in uploaded]


def updates(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """Each user's change of the weights, part after part, each folded to at most `columns`.

    The gradient where gradients are sent; ΔΘ = (Θ − Θ_u)/μ under plain SGD with one rate μ (APM, §3.3), ΔΘ
    otherwise. An EXPOSED part is not a change but the device's own weights: it is taken as it is.
    """
    public = federation(seen)
    found = seen.cached(("updates", columns), lambda: changes(seen, public, columns))
    chosen = [name for name in found.place if not parts or part_of(name) in parts]
    width, lost = sum(found.width[n] for n in chosen), max(found.loss[n] for n in chosen)
    return Reading(found.columns(chosen), width, lost)


def parameters(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """The user's vector beside the mean of the vectors of the user's items, as the device holds them.

    Which items those are is granted (PARD's I'_u), or picked by the membership attack: as many rows of the
    upload as stand out. Where no user vector is uploaded or granted, the items' mean stands alone.
    """
    public = federation(seen)
    specs = public.schema.items()
    tables = [n for n, spec in specs if spec.table is not None and (not parts or part_of(n) in parts)]
    users, rows = [], []
    for exchange, user, mask in touches(seen, public):
        users.append(user)
        rows.append(torch.cat([_mean(public, exchange, name, mask).float().cpu() for name in tables], 1))
    items = spread(torch.cat(users), torch.cat(rows), public.n_users)
    own = None if parts else _vectors(seen)  # a part that is named stands alone
    features = items if own is None else torch.cat([own, items], 1)
    return Reading(features, features.shape[1], 0.0)


def profile(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """A column for each item: 1 where the user touched it, as granted or as the moves of its row suggest.

    No paper reads this; it is what a server has that looks at where the rows of an upload moved.
    """
    public = federation(seen)
    items, kept, sketch, lost = items_of(public), max(columns, BROAD), None, 0.0
    if items > kept:
        sketch = Sketch.of("profile", (items,), kept, torch.device("cpu"))
    users: list[Tensor] = []
    rows: list[Tensor] = []
    for _, user, mask in touches(seen, public):
        row = mask.float().cpu()
        lost = lost if users else loss(row, sketch)
        users.append(user)
        rows.append(row if sketch is None else sketch.fold(row))
    return Reading(spread(torch.cat(users), torch.cat(rows), public.n_users), items, lost)


def _mean(public: Public, exchange: Exchange, name: str, mask: Tensor) -> Tensor:
    """``[c, d]`` the mean over the chosen items of the vectors that the device holds; 0 where there is none.

    Where gradients are sent the device has not moved the table: its vectors are those it received.
    """
    value = exchange.received.values[name]
    if public.gradients or not isinstance(value, Rows):
        table = exchange.sent.all[name].reshape(mask.shape[1], -1)
        return mask.to(table.dtype) @ table / mask.sum(1, keepdim=True).clamp(min=1)
    chosen = mask.gather(1, value.row.clamp(min=0)) & (value.row >= 0)  # [c, r]
    total = (value.value.reshape(*value.row.shape, -1) * chosen[..., None]).sum(1)
    return total / chosen.sum(1, keepdim=True).clamp(min=1)


def embeddings(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """The user vectors alone: those uploaded, or those granted to an outsider."""
    vectors = _vectors(seen, parts)
    if vectors is None:
        raise BadInput("attack.reads", *NO_VECTOR.split("; "))
    return Reading(vectors, vectors.shape[1], 0.0)


def _vectors(seen: Seen, parts: Sequence[str] = ()) -> Tensor | None:
    """``[users, d]`` uploaded vectors, else those granted; None without either.

    What is uploaded comes first: a defence has changed it, and a grant stands in for what was not sent.
    """
    public, granted = seen.public, seen.granted.user_vectors
    names = _rows_of_users(public, parts) if public else []
    if public is None or not names:
        return None if granted is None else granted.float()
    return seen.cached(("vectors", tuple(names)), lambda: _uploaded(seen, public, names))


def _rows_of_users(public: Public, parts: Sequence[str]) -> list[str]:
    return [name for name in public.vectors if not parts or part_of(name) in parts]


def _uploaded(seen: Seen, public: Public, names: Sequence[str]) -> Tensor:
    users, rows = [], []
    for exchange in seen.probe({part_of(name) for name in names}):
        seats = public.seats[exchange.received.cohort.cpu()]
        values = [exchange.received.values[name] for name in names]
        row = torch.cat([value.flatten(2).float().cpu() for value in values if isinstance(value, Tensor)], 2)
        users.append(seats[seats >= 0])
        rows.append(row[seats >= 0])
    return spread(torch.cat(users), torch.cat(rows), public.n_users)


def recovered(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """The user vectors, recovered from the gradient of a head that devices share, though none is uploaded.

    No paper reads this. A part that is named need not be a head: the input of its first layer is recovered.
    """
    vector, there, _ = recover(seen, parts)
    return Reading(vector, vector.shape[1], 0.0, int((covered(seen) & ~there).sum()))


def withheld(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """The vector that each device keeps and never uploads: no server has it, so it must be granted."""
    kept = seen.granted.withheld
    assert kept is not None  # or it was refused
    return Reading(kept.float(), kept.shape[1], 0.0)


def lists(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """A column for each item: 1 where the user is shown it; whoever looks over a shoulder has that."""
    shown = seen.granted.lists
    if shown is None:
        raise BadInput("attack.reads", *NO_LISTS.split("; "))
    highest = int(shown.max()) if shown.numel() else 0
    items, kept = (
        max(highest, 0) + 1,
        max(columns, BROAD),
    )  # where nobody is shown anything, one column of zeros
    wide = torch.zeros(len(shown), items + 1)
    wide.scatter_(1, torch.where(shown < 0, items, shown), 1.0)
    if items <= kept:
        return Reading(wide[:, :items], items, 0.0)
    sketch = Sketch.of("lists", (items,), kept, torch.device("cpu"))
    return Reading(sketch.fold(wide[:, :items]), items, loss(wide[:, :items], sketch))


def difference(seen: Seen, parts: Sequence[str], columns: int) -> Reading:
    """What an erasure did to the user vectors, beside what it made of them: for who holds both."""
    now, former = _vectors(seen, parts), seen.granted.former_vectors
    if now is None or former is None:
        raise BadInput("attack.reads", *(NO_VECTOR if now is None else NO_FORMER).split("; "))
    if former.shape != now.shape:
        what = f"{list(former.shape)} before an erasure and {list(now.shape)} after it"
        raise BadInput("attack.reads", what, "give both of the same users, in the same columns")
    both = torch.cat([now - former.float(), now], 1)
    return Reading(both, both.shape[1], 0.0)


READINGS: dict[str, Callable[[Seen, Sequence[str], int], Reading]] = {
    "updates": updates,
    "parameters": parameters,
    "profile": profile,
    "embeddings": embeddings,
    "recovered": recovered,
    "withheld": withheld,
    "lists": lists,
    "difference": difference,
}
