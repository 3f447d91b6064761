"""``veilrec audit``: what anyone's user vectors give away about the users, without any training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    Borders,
    ByPosition,
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
from veilrec.errors import BadInput, nearest

if TYPE_CHECKING:
    from veilrec.lab.match_ids import Audience
    from veilrec.lab.threat import Threat

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
Classifiers = Annotated[
    Names, typer.Option("--classifier", metavar="NAME", help="Who learns, as in mlp; repeatable.")
]


def audit(
    vectors: Vectors,
    attributes: Users,
    attribute: Attributes = None,
    continuous: Continuous = None,
    id_: Id = None,
    vectors_id: VectorsId = None,
    ids: Ids = None,
    by_position: ByPosition = False,
    tensor: Tensor = None,
    borders: Borders = None,
    sep: Separator = None,
    header: Header = None,
    encoding: Encoding = None,
    escape: Escape = None,
    known: Annotated[float, typer.Option(help="Share of users whose label the attacker has.")] = 0.2,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of known users and attackers.")] = 3,
    seed: Annotated[int, typer.Option(help="Of those draws.")] = 0,
    classifier: Classifiers = None,
    users: Annotated[int, typer.Option(min=0, help="Attack at most so many users; 0 for all.")] = 20_000,
    controls: Controls = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit anyone's user vectors: which attribute can be read from them, and how surely."""
    from veilrec.cli.show.progress import showing
    from veilrec.datasets.reading.layout import FileFormat
    from veilrec.lab.anyone.files import VectorFiles
    from veilrec.runs.integrity.changes import vouched_for

    threat, learners = _threat(known, seeds), _learners(classifier or ())
    vectors, attributes = vouched_for(vectors), vouched_for(attributes)
    with showing("", quiet=quiet) as progress:
        progress.phase(f"reading {vectors}")
        files = VectorFiles(
            attributes=attribute or (),
            continuous=continuous or (),
            borders=borders_of(borders),
            id=id_,
            vectors_id=vectors_id,
            ids=ids,
            by_position=by_position,
            tensor=tensor,
            written=FileFormat(sep, header, encoding, escape),
            most=users,
        )
        audience = files.read(vectors, attributes)
        found = _attacked(audience, threat, learners, seed, progress)
        found |= {"controls": _controls(threat, learners, seed, progress)} if controls else {}
    kept = {
        "vectors": {"file": vectors.name, "users": len(audience.ids), "width": audience.vectors.shape[1]},
        "attributes": {"file": attributes.name},
        "seed": seed,
        "notes": list(audience.notes),
        "audit": found,
    }
    print_json(kept) if as_json else _print(vectors, audience, found)


def _threat(known: float, seeds: int) -> Threat:
    from veilrec.lab.threat import Threat

    if not 0 < known < 1:
        raise BadInput("--known", f"{known} is no share", "give a number between 0 and 1")
    return Threat(known=known, repeats=seeds, by_part=False, membership=False)


def _learners(names: Sequence[str]) -> tuple[str, ...]:
    from veilrec.attacks.common.classifiers import CLASSIFIERS
    from veilrec.lab.presets import WORST

    for name in names:
        if name not in CLASSIFIERS:
            raise BadInput("--classifier", f'no classifier "{name}"', nearest(name, CLASSIFIERS))
    return tuple(dict.fromkeys(names)) or WORST


def _attacked(
    audience: Audience, threat: Threat, learners: tuple[str, ...], seed: int, progress: Any
) -> dict[str, Any]:
    """Attack the vectors, and return what the attackers find."""
    import torch

    from veilrec.attack import Seen
    from veilrec.attacks.attribute import AttributeInference
    from veilrec.interactions import id_hashes, lots
    from veilrec.lab.lab import People, audit
    from veilrec.lab.soundness.columns import places_of

    vectors = torch.from_numpy(audience.vectors)
    people = People(
        labels={name: torch.from_numpy(label) for name, label in audience.labels.items()},
        tags=id_hashes(audience.ids),
        classes=audience.classes,
        values={name: torch.from_numpy(value) for name, value in audience.values.items()},
        lots=lots(audience.ids, vectors),
        places=places_of(audience.ids),
    )
    seen = Seen.of_vectors(vectors, audience.columns)
    attacks = {"embeddings": AttributeInference("embeddings", classifiers=learners)}

    def tell(name: str, done: int, total: int) -> None:
        progress(f"attack on {name}", done, total, None)

    found = audit(seen, people, threat, attacks, seed, tell)
    return {**found, "sees": "one vector of every user, and nothing else"}


def _controls(threat: Threat, learners: tuple[str, ...], seed: int, progress: Any) -> list[dict[str, Any]]:
    from veilrec.lab.soundness.controls import controls

    def tell(name: str, done: int, total: int) -> None:
        progress(f"control: {name}", done, total, None)

    return controls(learners, threat, seed, tell)


def _print(path: Path, audience: Audience, found: dict[str, Any]) -> None:
    from veilrec.cli.show.leaks import print_audit, printable
    from veilrec.cli.show.tables import console

    out, (count, width) = console(), audience.vectors.shape
    out.print(f"{printable(path.name)}: {count:,} users with a vector of {width:,} numbers and attributes.")
    for note in audience.notes:
        out.print(f"Note: {printable(note)}.", style="yellow")
    print_audit("of vectors", found)
