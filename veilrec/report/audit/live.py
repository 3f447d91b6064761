"""Live: an audit of anyone's vectors in one call, and a page of it in another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilrec.base.files import atomic
from veilrec.base.locks import writer_of
from veilrec.errors import BadInput
from veilrec.lab.anyone.arrays import described_of, vectors_of
from veilrec.lab.anyone.audited import audited
from veilrec.lab.anyone.outsider import Outsider, Progress, learners_of
from veilrec.lab.attributes import Described, read_attributes
from veilrec.lab.match_ids import Audience, join
from veilrec.lab.vectors import Vectors, read_vectors
from veilrec.metrics.paired_audits import PairedAudits, paired
from veilrec.metrics.vector_audits import VectorAudit
from veilrec.report import render_audit

__all__ = ["LiveAudit", "audit"]


class LiveAudit(VectorAudit):
    """An audit at hand, which makes pages of itself and is compared with another."""

    def report(self, path: Path | str, *, title: str = "") -> Path:
        """Make a page that a person can read; it opens offline and runs nothing."""
        place = Path(path)
        with writer_of(place), atomic(place) as sink:
            sink.write(render_audit(self, title=title).encode())
        return place

    def compare(self, after: VectorAudit) -> PairedAudits:
        """What leaks less in another audit of the same people, in pairs."""
        return paired(self, after)


def audit(
    vectors: Any,
    attributes: Any,
    *,
    ids: Iterable[Any] | None = None,
    by_position: bool = False,
    attribute: Sequence[str] = (),
    continuous: Sequence[str] = (),
    borders: Mapping[str, Sequence[float]] | None = None,
    control: Any = None,
    control_attributes: Any = None,
    control_ids: Iterable[Any] | None = None,
    known: float = 0.2,
    seeds: int = 3,
    seed: int = 0,
    classifiers: Sequence[str] = (),
    users: int = 20_000,
    progress: Progress | None = None,
) -> LiveAudit:
    """Audit vectors of users: which attributes can be read from them, and how surely.

    >>> import numpy, veilrec
    >>> sex = numpy.arange(60) % 2
    >>> vectors = numpy.stack([numpy.sin(numpy.arange(60.0)), 5.0 * sex], 1)
    >>> found = veilrec.audit(vectors, {"sex": sex}, seeds=1, classifiers=["logistic"])
    >>> found.findings[0].severity
    'high'

    Args:
        vectors: One row a user: an array of numpy or torch, a frame, or the path of a file.
        attributes: A frame, columns by name as in ``{"gender": [...]}``, or the path of a file.
        ids, by_position: Whose the vectors are, or that row n is the same user in both.
        attribute, continuous, borders: As `read_attributes` has them.
        control, control_attributes, control_ids: People on whom nothing was trained.
        known, seeds, seed, classifiers: As `Outsider` has them.
        users: Attack at most so many; 0 for all.
        progress: Called with ``(name, done, total)``.
    """
    columns = {"attributes": attribute, "continuous": continuous, "borders": borders or {}}
    if not 0 < known < 1:
        raise BadInput("known", f"{known} is no share", "give a number between 0 and 1")
    outsider = Outsider(known, seeds, learners_of(classifiers, "classifiers"), seed)
    about, told = _described(attributes, columns, "attributes")
    mine = _vectors(vectors, ids, "vectors")
    audience = _joined(mine, about, told=told, by_position=by_position, users=users)
    beside = None
    if control is not None:
        if control_attributes is not None:
            about, told = _described(control_attributes, columns, "control_attributes")
        elif not told:
            raise BadInput("control", "nothing says who its people are", "give control_attributes as well")
        theirs = _vectors(control, control_ids, "control")
        others = _joined(theirs, about, told=told, by_position=by_position, users=users)
        beside = _name(control, "control"), others
    names = _name(vectors, "vectors"), _name(attributes, "attributes")
    found = audited(outsider, audience, names, beside, progress)
    return LiveAudit(found.values, found.name)


def _vectors(given: Any, ids: Iterable[Any] | None, where: str) -> Vectors:
    if not isinstance(given, Path | str):
        return vectors_of(given, ids, where)
    read = read_vectors(Path(given))
    return read if ids is None else replace(vectors_of(read.values, ids, where), columns=read.columns)


def _described(given: Any, columns: Mapping[str, Any], where: str) -> tuple[Described, bool]:
    if isinstance(given, Path | str):
        return read_attributes(Path(given), **columns), True
    return described_of(given, **columns, where=where)


def _joined(mine: Vectors, about: Described, *, told: bool, by_position: bool, users: int) -> Audience:
    """Both sides together: by ids where both have some, by position where neither has."""
    if mine.ids is not None and not told and not by_position:
        fix = "give a frame whose index or column has them, or leave the ids of the vectors out"
        raise BadInput(about.where, "has no ids, and the vectors have", fix)
    if mine.ids is None and told and not by_position:
        fix = "give ids=..., or by_position=True if row n is the same user in both"
        raise BadInput(mine.where, "has no ids, so nothing says whose vector is whose", fix)
    bare = replace(mine, ids=None) if not told else mine
    return join(bare, about, by_position=by_position or not told, most=users)


def _name(given: Any, otherwise: str) -> str:
    return Path(given).name if isinstance(given, Path | str) else otherwise
