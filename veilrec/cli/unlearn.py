"""``veilrec unlearn``: make vectors of users forget an attribute, those of a run or of anyone's file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    ByPosition,
    Data,
    DataDir,
    Id,
    Ids,
    Json,
    Plugins,
    Quiet,
    Tensor,
    VectorsId,
    print_json,
)
from veilrec.errors import BadInput, nearest

if TYPE_CHECKING:
    from veilrec.eraser import AttributeEraser
    from veilrec.lab.anyone.files import VectorFiles
    from veilrec.runs.requests.orders import UnlearnOrder

__all__ = ["unlearn"]

Names = list[str] | None

Target = Annotated[Path, typer.Argument(metavar="RUN|VECTORS", help="A run directory, or a file of vectors.")]
Attribute = Annotated[
    Names, typer.Option("--attribute", metavar="NAME", help="What shall be forgotten; repeatable.")
]
User = Annotated[
    Names, typer.Option("--user", metavar="ID", help="Who asks; by default everybody; repeatable.")
]
UsersFile = Annotated[
    Path | None, typer.Option("--users", metavar="FILE", help="The same, one id a line or as npy.")
]
Method = Annotated[
    str, typer.Option("--method", metavar="NAME", help="auto, or one of `veilrec list erasers`.")
]
Lenders = Annotated[
    Path | None,
    typer.Option(
        "--lenders",
        metavar="FILE",
        help="Whose labels may be learned from for who asks; by default all others, in a run who consents.",
    ),
]
Copies = Annotated[
    bool, typer.Option("--copies-out", help="Somebody may have the vectors as they were: auto heeds it.")
]
Receipt = Annotated[
    Path | None,
    typer.Option(
        "--receipt",
        metavar="FILE",
        help="What was asked and done, and what attackers find before and after: JSON.",
    ),
]
Keep = Annotated[
    Names,
    typer.Option("--keep", metavar="WHAT", help="RUN: leave checkpoint, transcript or reports; repeatable."),
]
KeepLabels = Annotated[
    bool, typer.Option("--keep-labels", help="RUN: leave it the classes of those who ask.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="NEW", help="VECTORS: the new file; nothing is overwritten."),
]
Attributes = Annotated[
    Path | None,
    typer.Option("--attributes", metavar="USERS", help="VECTORS: CSV or Parquet, a row a user."),
]


def unlearn(
    target: Target,
    attribute: Attribute = None,
    user: User = None,
    users: UsersFile = None,
    method: Method = "auto",
    lenders: Lenders = None,
    copies_out: Copies = False,
    receipt: Receipt = None,
    keep: Keep = None,
    keep_labels: KeepLabels = False,
    data: Data = None,
    data_dir: DataDir = None,
    out: Out = None,
    attributes: Attributes = None,
    id_: Id = None,
    vectors_id: VectorsId = None,
    ids: Ids = None,
    by_position: ByPosition = False,
    tensor: Tensor = None,
    plugin: Plugins = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make users' vectors forget an attribute, in a run or a file; nobody else's change by a bit.

    One attribute is erased from vectors. The history of these users stays, and this deletes no data.
    """
    from veilrec.lab.anyone.files import VectorFiles

    of_runs = {"--keep": keep, "--keep-labels": keep_labels, "--data": data, "--data-dir": data_dir}
    of_files = {"-o": out, "--attributes": attributes, "--id": id_, "--vectors-id": vectors_id, "--ids": ids}
    _check(target, of_runs, {**of_files, "--by-position": by_position, "--tensor": tensor})
    if receipt is not None:
        _check_new(receipt, out)
    order = _order(
        attribute, user, users, lenders, keep, method=method, copies=copies_out, labels=keep_labels
    )
    order = replace(order, audits=receipt is not None)
    if target.is_dir():
        told = _in_run(target, order, data, data_dir, quiet=quiet)
    else:
        files = VectorFiles(
            order.attributes, id=id_, vectors_id=vectors_id, ids=ids, by_position=by_position, tensor=tensor
        )
        told = _in_file(target, order, files, attributes, out, quiet=quiet)
    if receipt is not None:
        from veilrec.base.files import write_json

        write_json(receipt, told or _told_before(target), secret=True)
    print_json(told or {"done": None}) if as_json else _print(target, told)


def _told_before(run: Path) -> dict[str, Any]:
    """The receipt that a run keeps of what was done before."""
    from veilrec.base.files import read_json
    from veilrec.runs.integrity.manifest import RECEIPT, Manifest

    kept = Manifest.load(run)
    if RECEIPT not in kept.files:
        what = "that was asked for before, and the run keeps no receipt of it"
        raise BadInput("--receipt", what, "leave it out")
    return read_json(kept.path(RECEIPT))


def _check_new(receipt: Path, out: Path | None) -> None:
    from veilrec.base.plain import check_way

    if receipt.exists() or receipt == out:
        raise BadInput(receipt, "is there already", "name a new file with --receipt")
    check_way(receipt)


def _check(target: Path, of_runs: dict[str, Any], of_files: dict[str, Any]) -> None:
    """Refuse what means nothing for what is named."""
    run = target.is_dir()
    for name, given in (of_files if run else of_runs).items():
        if given:
            what = f"{target} is a run, which is changed where it lies" if run else f"{target} is no run"
            raise BadInput(name, what, "leave it out")


def _order(
    attribute: Names,
    user: Names,
    users: Path | None,
    lenders: Path | None,
    keep: Names,
    *,
    method: str,
    copies: bool,
    labels: bool,
) -> UnlearnOrder:
    """What the options ask for."""
    from veilrec.lab.ids import read_ids
    from veilrec.runs.requests.orders import KEEPABLE, UnlearnOrder

    for name in keep or ():
        if name not in KEEPABLE:
            raise BadInput("--keep", f'"{name}" is nothing that is purged', nearest(name, KEEPABLE))
    who = [*(user or ()), *(read_ids(users) if users is not None else ())]
    asks = who if user or users is not None else None
    lends = None if lenders is None else read_ids(lenders)
    return UnlearnOrder(attribute or (), asks, lends, method, copies, keep or (), labels)


def _eraser(method: str) -> AttributeEraser | None:
    """The eraser of a name; None for whichever suits."""
    from veilrec.eraser import AttributeEraser
    from veilrec.recipe import catalogue
    from veilrec.runs.requests.choosing import AUTO

    if method == AUTO:
        return None
    named = catalogue.build("erasers", method, {}, "--method")
    if not isinstance(named, AttributeEraser):
        raise BadInput("--method", f"{method} forgets no attribute", "take lethe or leace_null")
    return named


def _in_file(
    path: Path, order: UnlearnOrder, files: VectorFiles, about: Path | None, out: Path | None, *, quiet: bool
) -> dict[str, Any]:
    """Write vectors that forget into a new file."""
    from veilrec.cli.show.progress import showing
    from veilrec.lab.originals.opening import open_original
    from veilrec.lab.originals.original import new_place
    from veilrec.runs.integrity.changes import vouched_for
    from veilrec.runs.requests import bare
    from veilrec.runs.requests.choosing import Asked, choose

    if not order.attributes:
        raise BadInput("--attribute", "nothing is named", "say what shall be forgotten, as in gender")
    if out is None or about is None:
        option, what = ("-o", "a place for the new file") if out is None else ("--attributes", "who is what")
        raise BadInput(option, f"{what} is missing", f"add {option} FILE")
    eraser = _eraser(order.method)
    new_place(path, out)
    path, about = vouched_for(path), vouched_for(about)
    with showing("", quiet=quiet) as progress:
        progress.phase(f"reading {path}")
        original = open_original(path, files.vectors(path), files.column(path))
        known = bare.people_of(original, files.described(about), by_position=files.by_position)
        asks = None if order.users is None else known.places(order.users)
        lends = None if order.lenders is None else known.places(order.lenders, "--lenders")
        asked = Asked(order.attributes, asks, lends, order.copies, order.method, eraser)
        choice = choose(asked, known)
        progress.phase(f"forgetting {' and '.join(order.attributes)}")
        erased = bare.erase(original, choice, out)
        if order.audits:
            progress.phase("attackers look at what is left")
        return bare.told(original, choice, erased, out, known if order.audits else None)


def _in_run(
    folder: Path, order: UnlearnOrder, data: Path | None, data_dir: Path | None, *, quiet: bool
) -> dict[str, Any] | None:
    """Change a run; None where all that is asked was done before."""
    from veilrec.cli import finished
    from veilrec.cli.show.progress import showing
    from veilrec.runs.requests.taking import take

    def opened() -> finished.Opened:
        return finished.reopen(folder, data, data_dir, warns=False)

    def tell(sentence: str) -> None:
        if not quiet:
            print(sentence, file=sys.stderr, flush=True)

    wanted = order if order.attributes or order.users is not None else None
    with showing("", quiet=quiet) as progress:
        progress.phase(f"forgetting in {folder}")
        taken = take(folder, wanted, opened, _eraser, tell)
    if taken.finished is not None and not quiet:
        print("a request that was cut off on the way is done now", file=sys.stderr)
    return taken.receipt


def _print(target: Path, told: dict[str, Any] | None) -> None:
    from veilrec.cli.show.leaks import printable
    from veilrec.cli.show.tables import console

    out = console()
    if told is None:
        out.print(f"{printable(str(target))}: was asked for before, and is done; nothing was changed.")
        return
    done, what = told["done"], printable(" and ".join(told["asked"]["attributes"]))
    place = told["files"]["after"]["file"] if "files" in told else str(target)
    vectors = (
        f"{done['changed']:,} vector{'s were' if done['changed'] != 1 else ' was'} changed to forget {what}"
    )
    out.print(f"{printable(place)}: {vectors}, {done['unchanged']:,} are as they were to the bit.")
    if "conclusion" not in told:
        out.print("Nobody has measured what is left: --receipt FILE does.")
    out.print(f"Method: {done['eraser']['name']}, because {done['why']}.")
    if "utility" in told:
        name = told["utility"]["select"]
        before, after = (told["utility"][side][name] for side in ("before", "after"))
        out.print(f"Usefulness: {name} {before:.4f} → {after:.4f}.")
    if "purged" in told:
        out.print(f"Purged: {', '.join(told['purged']) or 'nothing was there'}.")
    for sentence in told.get("conclusion", ()):
        out.print(printable(sentence))
    for note in told["notes"]:
        out.print(f"Note: {printable(note)}.", style="yellow")
    for sentence in told["is_not"]:
        out.print(sentence, style="dim")
