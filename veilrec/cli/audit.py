"""``veilrec audit``: what anyone's user vectors give away about the users, without any training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    Borders,
    ByPosition,
    Columns,
    Controls,
    Encoding,
    Escape,
    Header,
    Id,
    Ids,
    Json,
    Quiet,
    Separator,
    Tensor,
    Users,
    VectorsId,
    borders_of,
    print_json,
)
from veilrec.errors import BadInput, LeaksMore

if TYPE_CHECKING:
    from veilrec.lab.anyone.outsider import Outsider
    from veilrec.metrics.vector_audits import VectorAudit

__all__ = ["audit"]

Names = list[str] | None

Vectors = Annotated[
    Path,
    typer.Argument(
        metavar="VECTORS", help="npy, npz, CSV, Parquet or safetensors: a row a user.", show_default=False
    ),
]
Attributes = Annotated[
    Names, typer.Option("--attribute", metavar="NAME", help="A column to attack; by default all; repeatable.")
]
Continuous = Annotated[
    Names, typer.Option("--continuous", metavar="NAME", help="A column of amounts, as age; repeatable.")
]
Control = Annotated[
    Path | None,
    typer.Option("--control", metavar="VECTORS", help="Vectors of people on whom nothing was trained."),
]
ControlUsers = Annotated[
    Path | None,
    typer.Option("--control-attributes", metavar="USERS", help="Of the control; by default --attributes."),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Save the audit, for report and compare.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Make a page of it that a person can read.")
]
FailAbove = Annotated[
    float | None,
    typer.Option("--fail-above", metavar="AUC", help="End with exit code 5 if a leak shown is above this."),
]
Classifiers = Annotated[
    Names, typer.Option("--classifier", metavar="NAME", help="Who learns, as in mlp; repeatable.")
]


def audit(
    vectors: Vectors,
    attributes: Users,
    attribute: Attributes = None,
    continuous: Continuous = None,
    borders: Borders = None,
    id_: Id = None,
    vectors_id: VectorsId = None,
    ids: Ids = None,
    by_position: ByPosition = False,
    tensor: Tensor = None,
    sep: Separator = None,
    header: Header = None,
    columns: Columns = None,
    encoding: Encoding = None,
    escape: Escape = None,
    known: Annotated[float, typer.Option(help="Share of users whose label the attacker has.")] = 0.2,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of known users and attackers.")] = 3,
    seed: Annotated[int, typer.Option(help="Of those draws.")] = 0,
    classifier: Classifiers = None,
    users: Annotated[int, typer.Option(min=0, help="Attack at most so many users; 0 for all.")] = 20_000,
    control: Control = None,
    control_attributes: ControlUsers = None,
    controls: Controls = False,
    out: Out = None,
    html: Html = None,
    title: Annotated[str, typer.Option(help="Of the page.")] = "",
    fail_above: FailAbove = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit anyone's user vectors: which attribute can be read from them, and how surely."""
    from veilrec.cli.show.progress import showing
    from veilrec.datasets.reading.layout import FileFormat
    from veilrec.lab.anyone.audited import audited
    from veilrec.lab.anyone.files import VectorFiles
    from veilrec.runs.integrity.changes import vouched_for

    outsider = _outsider(known, seeds, seed, classifier)
    _check_outputs(out, html, title, fail_above, (vectors, attributes, ids, control, control_attributes))
    vectors, attributes = vouched_for(vectors), vouched_for(attributes)
    written = FileFormat(sep, header, encoding, escape, _split(columns))
    taken = (attribute or (), continuous or (), borders_of(borders))
    files = VectorFiles(
        *(*taken, id_, vectors_id, ids, by_position, tensor, written, users, control, control_attributes)
    )
    with showing("", quiet=quiet) as progress, _writers(out, html):
        progress.phase(f"reading {vectors}")
        audience, others = files.read(vectors, attributes), files.read_control(attributes)
        beside = (control.name, others) if control is not None and others is not None else None

        def tell(name: str, done: int, total: int) -> None:
            progress(f"attack on {name}", done, total, None)

        found = audited(outsider, audience, (vectors.name, attributes.name), beside, tell, files.options)
        if controls:
            found.values["audit"]["controls"] = _controls(outsider, progress)
        _write(found, out, html, title)
    print_json(dict(found.values)) if as_json else _print(vectors, found, out, html)
    _refuse_above(found, fail_above)


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",")) if names else ()


def _outsider(known: float, seeds: int, seed: int, names: Names) -> Outsider:
    from veilrec.lab.anyone.outsider import Outsider

    if not 0 < known < 1:
        raise BadInput("--known", f"{known} is no share", "give a number between 0 and 1")
    return Outsider(known, seeds, names or (), seed)


def _check_outputs(
    out: Path | None, html: Path | None, title: str, fail_above: float | None, read: Sequence[Path | None]
) -> None:
    """Find out before the work whether what is to be written would take the place of what is read."""
    if out is not None and out == html:
        raise BadInput("--html", "names the same file as --out", "name another file")
    for name, path in (("--out", out), ("--html", html)):
        if path is not None and path in read:
            raise BadInput(name, f"{path} is read by this audit", "name another file")
    if title and html is None:
        raise BadInput("--title", "there is no page", "name one with --html FILE")
    if fail_above is not None and not 0.5 <= fail_above <= 1:
        raise BadInput("--fail-above", f"{fail_above:g} is no AUC", "give a number from 0.5 to 1")


@contextmanager
def _writers(*paths: Path | None) -> Iterator[None]:
    """The right to write some files, found out before the work and held until it is done."""
    from veilrec.base.locks import writer_of

    with ExitStack() as writers:
        for path in sorted(path for path in paths if path is not None):
            writers.enter_context(writer_of(path))
        yield


def _write(found: VectorAudit, out: Path | None, html: Path | None, title: str) -> None:
    if out is not None:
        found.save(out)
    if html is not None:
        from veilrec.base.files import atomic
        from veilrec.report import render_audit

        with atomic(html) as sink:
            sink.write(render_audit(found, title=title).encode())


def _refuse_above(found: VectorAudit, limit: float | None) -> None:
    """End with an exit code of its own where a leak is above what a pipeline lets pass."""
    if limit is not None and (worst := found.above(limit)):
        told = ", ".join(f"{one.attribute} ({one.told})" for one in worst)
        raise LeaksMore(f"--fail-above {limit:g}: {told}")


def _controls(outsider: Outsider, progress: Any) -> list[dict[str, Any]]:
    from veilrec.lab.soundness.controls import controls

    def tell(name: str, done: int, total: int) -> None:
        progress(f"control: {name}", done, total, None)

    return controls(outsider.attacks.classifiers, outsider.threat, outsider.seed, tell)


def _print(path: Path, found: VectorAudit, out: Path | None, html: Path | None) -> None:
    from veilrec.cli.show.leaks import print_audit, print_control, printable
    from veilrec.cli.show.tables import console

    screen, about = console(), found.values["vectors"]
    which = f", {printable(about['tensor'])}" if "tensor" in about else ""
    told = f"{about['users']:,} users with a vector of {about['width']:,} numbers and attributes."
    screen.print(f"{printable(path.name)}{which}: {told}")
    for note in found.values["notes"]:
        screen.print(f"Note: {printable(note)}.", style="yellow")
    print_audit("of vectors", found.audit)
    print_control(found.audit["attributes"])
    for kind, place in (("Saved", out), ("Page", html)):
        if place is not None:
            screen.print(f"{kind}: {printable(place)}", soft_wrap=True)
