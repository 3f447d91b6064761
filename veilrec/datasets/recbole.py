"""RecBole's atomic files: ``name.inter`` with events, ``name.user`` and ``name.item`` beside it, if any."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from veilrec.base.limits.bounds import Border, Seed, bounded
from veilrec.datasets.delimited import Options, Sources, from_reading, understood
from veilrec.datasets.reading.archives import Archive, Files, Folder, is_zip
from veilrec.datasets.reading.columns import ALIASES
from veilrec.datasets.reading.layout import plain
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["recbole"]


@bounded("data")
def recbole(
    path: Path,
    *,
    attribute: Sequence[str] = (),
    borders: Mapping[str, Sequence[Border]] | None = None,
    continuous: Sequence[str] = (),
    strict: bool = False,
    split_seed: Seed = 0,
) -> Interactions:
    r"""The atomic files of one dataset.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.inter"
    ...     _ = path.write_text("user_id:token\titem_id:token\ttimestamp:float\nann\tAlien\t7\n")
    ...     log = recbole(path)
    >>> log.user_ids, log.item_ids, log.time
    (['ann'], ['Alien'], tensor([7]))

    Args:
        path: The folder, a zip of it, or the ``.inter`` file itself.
        attribute, borders: Which columns of ``.user`` to take, and where to cut numbers into groups.
        continuous: Columns of numbers to take as they are; if none is named at all, those of type float.
        strict: Turn everything that would be reported into an error.
        split_seed: Decides the order of events at the same time, and so what is held out.
    """
    sources = atomic_sources(Path(path))
    options = Options(
        attribute=attribute,
        borders=borders or {},
        strict=strict,
        split_seed=split_seed,
        continuous=continuous,
    )
    options = typed(sources, options)
    return from_reading(sources, understood(sources.log, options), options)


def typed(sources: Sources, options: Options) -> Options:
    """Options for atomic files: how they are written, and which columns about users are numbers."""
    amounts = options.continuous
    if not (amounts or options.attribute) and sources.people is not None:
        cut = {plain(name) for name in options.borders}
        header = _header(sources.people.data)
        amounts = [name for name, kind in header if kind == "float" and plain(name) not in cut]
    return replace(options, separator=options.separator or "\t", header=True, continuous=amounts)


def atomic_sources(path: Path) -> Sources:
    """The three files of one dataset, of which the last two may be missing."""
    files, stem = atomic_files(path)
    log = files.read(f"{stem}.inter")
    present = {PurePosixPath(name).name for name in files.names}
    people, items = (
        files.read(f"{stem}.{kind}") if f"{stem}.{kind}" in present else None for kind in ("user", "item")
    )
    return Sources(stem, log, people, items if items and titled(items.data) else None)


def atomic_files(path: Path) -> tuple[Files, str]:
    """The folder or zip, and the name that the files share."""
    folder = path.parent if path.suffix == ".inter" else path
    files: Files = Folder(folder) if os.path.isdir(folder) else Archive(folder)
    if path.suffix == ".inter":
        return files, path.stem
    stems = sorted(PurePosixPath(name).stem for name in files.names if name.endswith(".inter"))
    if len(stems) != 1:
        raise BadInput(
            path, f"{len(stems)} .inter files", "give a folder with one, or the .inter file itself"
        )
    return files, stems[0]


def is_atomic(path: Path) -> bool:
    """True if `path` is an ``.inter`` file, or a folder or zip that holds one."""
    if path.suffix == ".inter":
        return True
    if os.path.isdir(path):
        return any(path.glob("*.inter"))
    return is_zip(path) and any(name.endswith(".inter") for name in Archive(path).names)


def titled(data: bytes) -> bool:
    """True if the header of an ``.item`` file names a title at all."""
    return any(plain(name) in ALIASES["title"] for name, _ in _header(data))


def _header(data: bytes) -> list[tuple[str, str]]:
    """Names of the columns and their types."""
    line = data.split(b"\n", 1)[0].decode("utf-8", errors="replace").lstrip("\ufeff").strip()
    cut = (field.rpartition(":") for field in line.split("\t"))
    return [(name, kind) for name, _, kind in cut]
