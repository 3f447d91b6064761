"""``veilrec unlearn``: make vectors of users forget an attribute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    ByPosition,
    Id,
    Ids,
    Json,
    Plugins,
    Quiet,
    Tensor,
    VectorsId,
    print_json,
)
from veilrec.errors import BadInput

if TYPE_CHECKING:
    from veilrec.runs.requests.choosing import Asked, KnownUsers

__all__ = ["unlearn"]

Names = list[str] | None

Target = Annotated[
    Path,
    typer.Argument(
        metavar="VECTORS", help="npy, CSV, Parquet or safetensors: a row a user.", show_default=False
    ),
]
Attributes = Annotated[
    Path | None,
    typer.Option("--attributes", metavar="USERS", help="CSV or Parquet: a row a user.", show_default=False),
]
Attribute = Annotated[
    Names, typer.Option("--attribute", metavar="NAME", help="What shall be forgotten; repeatable.")
]
User = Annotated[
    Names, typer.Option("--user", metavar="ID", help="Who asks; by default everybody; repeatable.")
]
UsersFile = Annotated[
    Path | None, typer.Option("--users", metavar="FILE", help="The same, one id a line or as npy.")
]
Lenders = Annotated[
    Path | None,
    typer.Option(
        "--lenders",
        metavar="FILE",
        help="Whose labels may be learned from instead of those of who asks; by default all others.",
    ),
]
Copies = Annotated[
    bool, typer.Option("--copies-out", help="Somebody may have the vectors as they were: auto heeds it.")
]
Method = Annotated[
    str, typer.Option("--method", metavar="NAME", help="auto, or one of `veilrec list erasers`.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="NEW", help="The new file; nothing is overwritten.")
]
Receipt = Annotated[
    Path | None, typer.Option("--receipt", metavar="FILE", help="What was asked and done, as JSON.")
]


def unlearn(
    target: Target,
    attribute: Attribute = None,
    user: User = None,
    users: UsersFile = None,
    method: Method = "auto",
    out: Out = None,
    attributes: Attributes = None,
    id_: Id = None,
    vectors_id: VectorsId = None,
    ids: Ids = None,
    by_position: ByPosition = False,
    tensor: Tensor = None,
    lenders: Lenders = None,
    copies_out: Copies = False,
    receipt: Receipt = None,
    plugin: Plugins = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make vectors of users forget an attribute; rows, ids and whoever does not ask stay as they are."""
    if not attribute:
        raise BadInput("--attribute", "nothing is named", "say what shall be forgotten, as in gender")
    if out is None or attributes is None:
        option, what = ("-o", "a place for the new file") if out is None else ("--attributes", "who is what")
        raise BadInput(option, f"{what} is missing", f"add {option} FILE")
    from veilrec.base.plain import check_way
    from veilrec.cli.show.progress import showing
    from veilrec.lab.anyone.files import VectorFiles
    from veilrec.lab.originals.opening import open_original
    from veilrec.lab.originals.original import new_place
    from veilrec.runs.integrity.changes import vouched_for
    from veilrec.runs.requests import bare
    from veilrec.runs.requests.choosing import choose

    new_place(target, out)
    if receipt is not None and (receipt.exists() or receipt == out):
        raise BadInput(receipt, "is there already", "name a new file with --receipt")
    if receipt is not None:
        check_way(receipt)
    target, attributes = vouched_for(target), vouched_for(attributes)
    with showing("", quiet=quiet) as progress:
        progress.phase(f"reading {target}")
        files = VectorFiles(
            attributes=attribute,
            id=id_,
            vectors_id=vectors_id,
            ids=ids,
            by_position=by_position,
            tensor=tensor,
        )
        original = open_original(target, files.vectors(target), files.column(target))
        people = bare.people_of(original, files.described(attributes), by_position=by_position)
        choice = choose(_asked(people, attribute, user, users, lenders, method, copies=copies_out), people)
        progress.phase(f"forgetting {' and '.join(attribute)}")
        erased = bare.erase(original, choice, out)
    told = bare.told(original, choice, erased, out)
    if receipt is not None:
        bare.write_receipt(receipt, told)
    print_json(told) if as_json else _print(told)


def _asked(
    people: KnownUsers,
    attributes: list[str],
    user: Names,
    users: Path | None,
    lenders: Path | None,
    method: str,
    *,
    copies: bool,
) -> Asked:
    """What the options say, against the users there are."""
    from veilrec.eraser import AttributeEraser
    from veilrec.lab.ids import read_ids
    from veilrec.recipe import catalogue
    from veilrec.runs.requests.choosing import AUTO, Asked

    named = None
    if method != AUTO:
        named = catalogue.build("erasers", method, {}, "--method")
        if not isinstance(named, AttributeEraser):
            raise BadInput("--method", f"{method} forgets no attribute", "take lethe or leace_null")
    who = [*(user or ()), *(read_ids(users) if users is not None else ())]
    where = "--user" if users is None else str(users)
    asks = people.places(who, where) if user or users is not None else None
    lends = None if lenders is None else people.places(read_ids(lenders), str(lenders))
    return Asked(attributes, asks, lends, copies, method, named)


def _print(told: dict[str, Any]) -> None:
    from veilrec.cli.show.leaks import printable
    from veilrec.cli.show.tables import console

    out, done = console(), told["done"]
    what, name = " and ".join(told["asked"]["attributes"]), done["eraser"]["name"]
    out.print(
        f"{printable(told['files']['after']['file'])}: {done['changed']:,} vectors forget {printable(what)}, "
        f"{done['unchanged']:,} are as they were to the bit."
    )
    out.print(f"Method: {name}, because {done['why']}.")
    for note in told["notes"]:
        out.print(f"Note: {printable(note)}.", style="yellow")
    for sentence in told["is_not"]:
        out.print(sentence, style="dim")
