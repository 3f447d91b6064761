"""Verification of runs: every byte of them is held against what vouches for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veilrec.base.files import Digest, digest, matches
from veilrec.base.locks import held_by
from veilrec.base.plain import NotPlain
from veilrec.errors import BadInput, Corrupted, InUse
from veilrec.result import Result
from veilrec.runs.folder import CHECKPOINT, RECIPE
from veilrec.runs.integrity.described import Faulty, check_states, descriptions, read
from veilrec.runs.integrity.manifest import Manifest, is_finished, steadily
from veilrec.runs.integrity.sealed import digests
from veilrec.runs.requests.orders import is_pending

__all__ = ["Verified", "verified"]

WAITS = "; a request to forget was cut off: `veilrec unlearn` with this run goes on with it"


@dataclass(frozen=True)
class Verified:
    """What came of a run's verification.

    Attributes:
        run: The directory.
        state: ``whole`` or ``damaged``; ``unfinished``, and whole so far; ``unverified`` where nothing
            vouches for all of it.
        files: How many files were held against their checksums.
        generation: How often the finished run has been written: 1, and one more for each change.
        faults: What is wrong, file by file.
        pending: Whether a request to forget was taken that is not done yet.
    """

    run: Path
    state: Literal["whole", "damaged", "unfinished", "unverified"]
    files: int = 0
    generation: int = 0
    faults: tuple[str, ...] = ()
    pending: bool = False

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.faults:
            more = len(self.faults) - 1
            return self.faults[0] + (f" (and {more} more)" if more else "")
        count = f"{self.files} file{'s' * (self.files != 1)}"
        return {
            "whole": f"whole: {count}, generation {self.generation}{WAITS if self.pending else ''}",
            "unfinished": f"unfinished, and whole so far: {count}",
            "unverified": "written before runs had manifests: cannot be verified",
        }[self.state]


def verified(run: Path) -> Verified:
    """Verify a run, finished or not, whatever was checked before.

    Raises:
        BadInput: Where there is none, or where it is at work just now.
    """
    if is_finished(run):
        return _finished(run)
    if not (run / RECIPE).exists() and not (run / CHECKPOINT).exists():
        raise BadInput(run, "holds no run", "name the folder of a run, or of several")
    if holder := held_by(run):
        raise InUse(run, f"locked by {holder}", "verify it when that process has ended")
    return _unfinished(run)


def _finished(run: Path) -> Verified:
    def look(manifest: Manifest) -> Verified:
        manifest.checked.forget()
        if faults := manifest.faults():
            raise _Faults(tuple(faults), manifest)
        Result.read(manifest)
        state: Literal["whole", "unverified"] = "whole" if manifest.generation else "unverified"
        count = len(manifest.files)
        return Verified(run, state, count, manifest.generation, pending=is_pending(run))

    try:
        return steadily(run, look)
    except _Faults as found:
        return Verified(run, "damaged", len(found.manifest.files), found.manifest.generation, found.faults)
    except Corrupted as found:
        return Verified(run, "damaged", faults=(f"{found}",))


class _Faults(Corrupted):
    def __init__(self, faults: tuple[str, ...], manifest: Manifest) -> None:
        super().__init__(faults[0])
        self.faults, self.manifest = faults, manifest


def _unfinished(run: Path) -> Verified:
    """Hold all checkpoints against their descriptions, and what these say of files beside them."""
    faults: list[str] = []
    seen: set[Path] = set()
    for path in descriptions(run / CHECKPOINT):
        try:
            saved = read(path)
            check_states(path.parent, saved)
        except (Faulty, Corrupted) as wrong:
            faults.append(f"{path}: {wrong}")
            continue
        seen |= {path, *(path.parent / name for name in saved.files)}
        for kind, holds in (("began", matches), ("journals", _begins_with)):
            for name, expected in digests(saved.notes.get(kind, {})).items():
                seen.add(run / name)
                if not holds(run / name, expected):
                    faults.append(f"{run / name}: not what the run wrote; restore the file")
    return Verified(
        run, "damaged" if faults else "unfinished", len(seen), faults=tuple(dict.fromkeys(faults))
    )


def _begins_with(path: Path, expected: Digest) -> bool:
    """Whether a journal begins with what it held at a checkpoint."""
    try:
        return digest(path, expected.bytes) == expected
    except (FileNotFoundError, NotPlain):
        return not expected.bytes
