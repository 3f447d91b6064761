"""Disclosures: all that a device tells the server, read off the schemas that its method declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from veilrec.base.params import Scope, part_of
from veilrec.base.plan import Forwards
from veilrec.defence import Defence
from veilrec.model import Recommender
from veilrec.privacy.mechanism import Mechanism
from veilrec.protocol import Protocol
from veilrec.wire.codec import Spec

__all__ = ["Disclosure", "disclosures"]


@dataclass(frozen=True)
class Disclosure:
    """One thing that the server learns of a device.

    Attributes:
        name: Under which it travels; empty for what any message tells by being there.
        kind: ``message``, ``count`` (how many of something), ``sum`` (over users), ``values`` (a whole
            tensor), ``rows`` (of a table), ``items`` (their numbers), ``labels`` (soft ones), ``query`` or
            ``post``.
        says: It in one sentence.
        scope: ``shared`` or ``exposed``; empty where it is not a weight of the model.
        dtype, shape: Of the tensor; of one row, or of one user's post.
        table: How many rows the table has; None where it is not a table.
        numbers: Which row numbers are in the clear: ``touched`` ones, or ``all``, which tells nothing.
        of: ``every client``, or ``consenting users``.
        blurred: Whoever declares noise on it, or draws it at random; what others do to it before it leaves is
            not said.
    """

    name: str
    kind: Literal["message", "count", "sum", "values", "rows", "items", "labels", "query", "post"]
    says: str
    scope: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    table: int | None = None
    numbers: Literal["", "touched", "all"] = ""
    of: Literal["every client", "consenting users"] = "every client"
    blurred: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """As ``result.json`` keeps it."""
        return {**asdict(self), "shape": list(self.shape), "blurred": list(self.blurred)}


def disclosures(
    model: Recommender,
    protocol: Protocol,
    defence: Defence,
    dtype: torch.dtype = torch.float32,
    forwards: Forwards = "each",
) -> list[Disclosure]:
    """List what the messages of one device tell; anything else is refused on its way out.

    Args:
        model: As the defence has left it (`Defence.attach`).
        protocol, defence: Whose schemas are read.
        dtype: Of weights.
        forwards: What of a round leaves the devices' side.

    Raises:
        BadInput: Where the defence cannot act on what the protocol sends.
    """
    schema = protocol.schema(model, None, dtype)
    noise = (*protocol.declares(model), *defence.declares(model, protocol))
    sent = [_entry(name, spec, model, noise) for name, spec in schema.items()]
    asked = protocol.query_schema(model, dtype).items()
    queries = [replace(_entry(name, spec, model, noise), kind="query") for name, spec in asked]
    posting = defence.posts(model, dtype)
    posts = [_post(name, spec) for name, spec in posting.schema.items()] if posting else []
    return [_message(sent, forwards), *sent, *queries, *posts]


def _message(weights: list[Disclosure], forwards: Forwards) -> Disclosure:
    says = "Which client takes part in which round"
    if any(one.numbers == "touched" for one in weights):
        says += ", and the length of its message, which grows with the number of rows in it"
    if forwards != "each":
        least = "all clients of a round" if forwards == "all" else f"at least {forwards} clients"
        says += f"; what follows reaches the server only in sums over {least}"
    return Disclosure("", "message", says + ".")


EXAMPLES = "How many events the client trains on: those of its users, without what is held out"
SAYS = {
    "count": "How many of something, under",
    "sum": "Sums over the client's users, under",
    "items": "Items of the client, in the order of time, under",
    "labels": "Soft labels of items under",
}


def _entry(name: str, spec: Spec, model: Recommender, noise: tuple[Mechanism, ...]) -> Disclosure:
    """Describe what travels under one name of the schema."""
    mine = [mechanism for mechanism in noise if mechanism.name == name]
    if spec.kind in ("weight", "gradient"):
        return _weight(name, spec, model, mine)
    says = EXAMPLES if name == "examples" else f"{SAYS[spec.kind]} {name} ({_size(spec)})"
    says += f"{_by(mine)}."
    kind: Any = spec.kind
    dtype, blurred = _plain(spec.dtype), _names(mine)
    return Disclosure(name, kind, says, dtype=dtype, shape=spec.shape, table=spec.table, blurred=blurred)


def _names(mine: Sequence[Mechanism]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(mechanism.defence for mechanism in mine))


def _by(mine: Sequence[Mechanism]) -> str:
    """The end of a sentence, where the values are not as they were."""
    drawn = any(mechanism.kind == "exponential" for mechanism in mine)
    return f"; {'drawn at random' if drawn else 'blurred'} by {' and '.join(_names(mine))}" if mine else ""


def _weight(name: str, spec: Spec, model: Recommender, mine: list[Mechanism]) -> Disclosure:
    """A weight of the model, or its gradient."""
    dtype, part = _plain(spec.dtype), model.parts.get(part_of(name))
    numbers: Literal["", "touched", "all"] = ""
    if spec.table is not None:
        numbers = "all" if any(mechanism.rows == "all" for mechanism in mine) else "touched"
    says = _what(name, spec, None if part is None else part.scope, numbers)
    return Disclosure(
        name,
        "values" if spec.table is None else "rows",
        f"{says}{_by(mine)}.",
        scope="" if part is None else part.scope.value,
        dtype=dtype,
        shape=spec.shape,
        table=spec.table,
        numbers=numbers,
        blurred=_names(mine),
    )


def _what(name: str, spec: Spec, scope: Scope | None, numbers: str) -> str:
    """The part of the sentence that says what the values are, and what the numbers of rows tell."""
    size = _size(spec)
    if scope is Scope.EXPOSED:
        return f"The client's own {name} ({size}), as it has trained it: averaged with nobody's"
    slope = f"The gradient of the client's own loss in {name}"
    mean = slope if spec.kind == "gradient" else f"{name} as the client trained it"
    whose = mean if scope is Scope.SHARED else f"What the client sends as {name}"
    if spec.table is None:
        return f"{whose} ({size})"
    rows = f"{whose} ({spec.table:,} rows of {size})"
    if numbers == "all":
        return f"{rows}, every row of it: the row numbers tell nothing"
    among = "the items that its users touched, among untouched ones that were drawn"
    return f"{rows}, only the rows trained on, with their numbers: {among}"


def _post(name: str, spec: Spec) -> Disclosure:
    says = f"What users post openly as {name} ({_size(spec)}): only those who consent; every device gets it."
    return Disclosure(name, "post", says, dtype=_plain(spec.dtype), shape=spec.shape, of="consenting users")


def _size(spec: Spec) -> str:
    return "×".join(str(axis) for axis in spec.shape) or "one number"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
