"""A result: all that a report needs of a run, as ``result.json``, readable without torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

from veilrec.base.files import LARGEST, Digest, read_json
from veilrec.base.limits.schema import Wrong
from veilrec.errors import BadInput, Corrupted
from veilrec.runs.integrity.changes import changing
from veilrec.runs.integrity.manifest import BEFORE, RESULT, SINCE, Manifest, steadily
from veilrec.runs.integrity.results import check_result

__all__ = ["RESULT", "Result", "Utility"]


@dataclass(frozen=True)
class Utility:
    """The usefulness of the lists that users saw, in the selected state.

    Attributes:
        test, validation: Means over users by metric@k.
        floor: What popularity reaches on the same test items and candidates.
        collapsed: Whether the model is below that floor, by the metric that selected.
        select: That metric.
        protocol: Split, candidates and ties in words; tables with different ones must not be merged.
        users: How many were tested.
    """

    test: Mapping[str, float]
    validation: Mapping[str, float]
    floor: Mapping[str, float]
    collapsed: bool
    select: str
    protocol: str
    users: int


@dataclass(frozen=True, repr=False)
class Result:
    """A result: everything that a report needs of a run.

    Attributes:
        utility: How good the lists were.
        selected, rounds: The round whose state was kept, and how many were run.
        stopped: What ended training: ``rounds``, ``patience``, ``budget`` or ``defence``.
        traffic: Bytes up and down: mean and maximum per client and round, total, and by kind of message;
            under ``erasing`` what each eraser took that went in rounds, and whether it came to rest.
        timing: Seconds by phase, and peak memory in bytes.
        environment: Versions, device, cores.
        data: Counts, and what was dropped on the way in.
        settings: The experiment in plain words and numbers.
        privacy: What attacks found out, by the name of their protocol.
        discloses: What the messages of one device tell the server, by name and in words.
        ledger: What the defences guarantee formally, per upload and over the run, or that they do not.
        curves: Metrics by round.
        utility_replicates: Bootstrap replicates by metric, keyed by user: two runs pair up.
        erased: What it was made to forget after training, request by request.
        fingerprint, data_fingerprint: Hashes of recipe and data together, and of the data.
    """

    utility: Utility
    selected: int
    rounds: int
    stopped: str
    traffic: Mapping[str, Any]
    timing: Mapping[str, Any]
    environment: Mapping[str, Any]
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    fingerprint: str
    data_fingerprint: str
    privacy: Mapping[str, Any] = field(default_factory=dict)
    discloses: Sequence[Mapping[str, Any]] = ()
    ledger: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)
    utility_replicates: Mapping[str, Any] = field(default_factory=dict)
    erased: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        """What was trained and what came of it, in a line."""
        return f"<Result of {'; '.join(f'{name}: {value}' for name, value in self._told())}>"

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._told()
        )
        return f"<table><tbody>{rows}</tbody></table>"

    def _told(self) -> list[tuple[str, str]]:
        """What somebody wants to see of it at once."""
        settings, select = self.settings, self.utility.select
        names = [
            str(entry.get("name")) for entry in settings.get("defence") or () if isinstance(entry, Mapping)
        ]
        useful = f"{self.utility.test[select]:.4f}, popularity {self.utility.floor[select]:.4f}"
        told = [
            ("model", f"{(settings.get('model') or {}).get('name')} on {self.data.get('name')}"),
            ("defence", " + ".join(names) or "none"),
            ("rounds", f"{self.selected} selected of {self.rounds}"),
            (select, useful + (", not learned" if self.utility.collapsed else "")),
        ]
        for audit, found in self.privacy.items():
            for name, entry in (found.get("attributes") or {}).items():
                if verdict := entry.get("verdict"):
                    score = str(verdict.get("score"))
                    value = (verdict.get(score) or {}).get("value")
                    shown = "leaks" if verdict.get("leaning") != "none" else "no leak shown"
                    told.append((f"{name} ({audit})", f"{score} {value}, {shown}"))
        return told

    def reads(self) -> str:
        """A sentence on what the model is told about a user beside the events; empty where it is nothing."""
        told = self.data.get("features")
        if not told:
            return ""
        blocks = dict.fromkeys(name.split("=")[0] for name in told["names"] if "=" in name)
        said = f"The model reads {told['width']} features of each user"
        blurred = ", blurred on the device before" if told.get("blurred") else ""
        if not blocks:
            return f"{said}{blurred}, no attribute among them."
        which = f"among them the attributes themselves ({', '.join(blocks)})"
        return f"{said}{blurred}, {which}" + (
            "." if blurred else ": who sees how it moves may read them off."
        )

    def save(
        self, folder: Path, files: Mapping[str, Digest] | None = None, without: Collection[str] = ()
    ) -> None:
        """Write it, with a manifest that vouches for it and for `files`: the run is finished from then on.

        What the run is `without` from then on is removed, even where the process ends on its way. The lock is
        the caller's.
        """
        with changing(folder) as new:
            new.keep(files or {})
            for name in without:
                new.drop(name)
            new.write_json(RESULT, self.values())

    @classmethod
    def load(cls, folder: Path) -> Result:
        """The result of a finished run.

        Raises:
            BadInput: Where there is none.
            Corrupted: Where it is not what the run wrote.
        """
        return steadily(folder, cls.read)

    @classmethod
    def read(cls, manifest: Manifest) -> Result:
        """The result among the files of a run."""
        vouched = manifest.files.get(
            RESULT
        )  # of whatever length; where nothing vouches for it there is a bound
        told = read_json(manifest.path(RESULT), LARGEST if vouched is None else vouched.bytes)
        return cls.of(told, manifest.folder / RESULT)

    def values(self) -> dict[str, Any]:
        """The whole result in plain words and numbers."""
        return {"version": SINCE, **asdict(self)}

    @classmethod
    def of(cls, values: Mapping[str, Any], path: Path) -> Result:
        """The reverse of `values`, which come from a file."""
        if (version := values.get("version")) not in (SINCE, BEFORE):
            raise BadInput(path, f"written as version {version}", f"this veilrec reads version {SINCE}")
        try:
            check_result(values)
        except Wrong as wrong:
            raise Corrupted(f"{path}: {wrong}; restore the file") from wrong
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        return cls(**{**known, "utility": Utility(**known["utility"])})
