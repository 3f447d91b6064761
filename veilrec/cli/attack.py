"""``veilrec attack``: what a finished run gives away, by other attackers, without training again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.base.names import GRANTS, PROTOCOLS, READINGS
from veilrec.cli.arguments import (
    Controls,
    Data,
    DataDir,
    Device,
    Json,
    Plugins,
    Quiet,
    Runs,
    print_json,
)
from veilrec.errors import BadInput, nearest

if TYPE_CHECKING:
    from veilrec.cli.finished import Opened
    from veilrec.interactions import Interactions
    from veilrec.lab.examiner import Examiner
    from veilrec.lab.lab import Audit

__all__ = ["attack"]


def _names(option: str, told: str, metavar: str = "NAME") -> Any:
    return typer.Option(option, metavar=metavar, help=f"{told}; repeatable.")


def _any_of(names: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = names
    return f"{', '.join(most)} or {last}"


Names = list[str] | None
SHARES = "apm@0.3 is apm with 30 % of users known, pard@consenting pard with those who consent"
Preset = Annotated[Names, _names("--preset", f"{_any_of(PROTOCOLS)}; {SHARES}")]
Learner = Annotated[Names, _names("--classifier", "Who learns, as in mlp")]
Reads = Annotated[Names, _names("--reads", _any_of(READINGS))]
Parts = Annotated[Names, _names("--part", "Only this part of the model")]
Wanted = Annotated[Names, _names("--attribute", "What is attacked; by default everything")]
Grant = Annotated[Names, _names("--grant", _any_of(GRANTS), "WHAT")]
Known = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE", help="Share of users whose label is known, or consenting: those who consent."
    ),
]
Repeats = Annotated[int | None, typer.Option(min=1, help="Draws of known users.")]
Selection = Annotated[str | None, typer.Option(help="last, validation or oracle.")]
Seed = Annotated[int | None, typer.Option(help="Instead of the run's own.")]
Name = Annotated[str, typer.Option("--name", help="What the findings are called in result.json.")]
NoSave = Annotated[bool, typer.Option("--no-save", help="Leave result.json as it is.")]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--attributes",
        metavar="USERS",
        help="CSV or Parquet with classes in the place of the run's; result.json stays as it is.",
    ),
]


def attack(
    runs: Runs,
    preset: Preset = None,
    classifier: Learner = None,
    reads: Reads = None,
    part: Parts = None,
    attribute: Wanted = None,
    known: Known = None,
    grant: Grant = None,
    repeats: Repeats = None,
    selection: Selection = None,
    seed: Seed = None,
    name: Name = "",
    no_save: NoSave = False,
    controls: Controls = False,
    attributes: Labels = None,
    data: Data = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attack finished runs again, with other attackers, readings or protocols; nothing is trained again."""
    from veilrec.recipe.cells import runs_in

    threat = {
        "known": None if known is None else _known(known),
        "repeats": repeats,
        "selection": selection,
        "grants": grant,
        "attributes": attribute,
    }
    changes = {key: tuple(v) if isinstance(v, list) else v for key, v in threat.items() if v is not None}
    audits = _audits(preset or (), reads or (), part or (), classifier or (), changes, name)
    told: dict[str, Any] = {}
    for place in (found for run in runs for found in runs_in(run)):
        save = not no_save and attributes is None  # a run does not learn classes that it does not know
        told[str(place)] = _one(
            *(place, audits, seed, (data, data_dir, device)),
            save=save,
            quiet=quiet,
            controls=controls,
            people=attributes,
        )
        if not as_json:
            _print(place, told[str(place)])
    if as_json:
        print_json(told)


def _known(text: str) -> float | str:
    from veilrec.lab.threat import CONSENTING, known_from

    if (known := known_from(text)) is None:
        raise BadInput("--known", f'"{text}" is no share', f"give a number between 0 and 1, or {CONSENTING}")
    return known


def _audits(
    presets: Any, reads: Any, parts: Any, classifiers: Any, changes: dict[str, Any], name: str
) -> list[Audit]:
    """Protocols by name, or one put together from what was named; either with changes."""
    from veilrec.lab.threat import Threat
    from veilrec.recipe.settings import fit, options_of

    changes = fit("threat", changes, options_of(Threat), "a threat")
    if not (reads or parts or classifiers):
        return _by_name(presets, changes, name)
    if presets:
        raise BadInput(
            "--preset", "a protocol has its own attackers", "drop it, or --reads, --part and --classifier"
        )
    return [_put_together(reads, parts, classifiers, changes, name)]


def _put_together(reads: Any, parts: Any, classifiers: Any, changes: dict[str, Any], name: str) -> Audit:
    """A protocol of attackers by their readings, parts and classifiers."""
    from veilrec.attacks.attribute import AttributeInference
    from veilrec.lab.examiner import CUSTOM
    from veilrec.lab.lab import Audit
    from veilrec.lab.presets import WORST
    from veilrec.lab.threat import Threat

    for entry in reads:
        _check_reading(entry)
    options: dict[str, Any] = {"parts": tuple(parts), "classifiers": tuple(classifiers) or WORST}
    chosen: Any = reads or ("updates",)
    attacks = {entry: AttributeInference(reads=entry, **options) for entry in chosen}
    return Audit(name or CUSTOM, Threat(**{"by_part": False, "membership": False, **changes}), attacks)


def _by_name(presets: Any, changes: dict[str, Any], name: str) -> list[Audit]:
    """The protocols of papers, or our own; one that was changed does not go by its own name."""
    from veilrec.lab.presets import OWN, preset

    chosen = [preset(entry, where="--preset") for entry in presets or (OWN,)]
    if name and len(chosen) > 1:
        raise BadInput("--name", "one name for several protocols", "name one --preset")
    changed = ", changed" if changes.keys() - {"attributes"} else ""
    return [
        replace(one, threat=replace(one.threat, **changes), name=name or f"{one.name}{changed}")
        for one in chosen
    ]


def _check_reading(name: str) -> None:
    if name not in READINGS:
        raise BadInput("--reads", f'no reading "{name}"', nearest(name, READINGS))


def _one(
    place: Path,
    audits: list[Audit],
    seed: int | None,
    source: tuple[Any, ...],
    *,
    save: bool,
    quiet: bool,
    controls: bool = False,
    people: Path | None = None,
) -> dict[str, Any]:
    from veilrec.base.locks import WAIT, locked
    from veilrec.cli import finished
    from veilrec.cli.show.progress import showing
    from veilrec.lab.examiner import Examiner
    from veilrec.result import Result
    from veilrec.runs.integrity.changes import change, settle
    from veilrec.runs.integrity.manifest import RESULT, is_finished

    if save and is_finished(place):
        with locked(place, WAIT):  # found out now whether anything can be kept, and not after the work
            settle(place)
    with showing("", str(place), quiet=quiet) as progress:
        progress.phase("opening")
        opened = finished.reopen(place, *source)
        run = opened.run
        own = run.result.settings["seed"] if seed is None else seed
        known = run.data if people is None else _labelled(run.data, people, audits)
        examiner = Examiner(known, audits, own)
        _check(examiner, opened, labelled=people is not None)
        state, selected, kept = opened.state, run.result.selected, run.transcript
        found = examiner.examine(opened.federation, state, selected, kept, progress, controls=controls)
    if save:
        with change(place) as new:  # and read again: another attack may have found something meanwhile
            others = {name: entry for name, entry in run.manifest.files.items() if name != RESULT}
            if any(new.before.files.get(name) != entry for name, entry in others.items()):
                raise BadInput(place, "has become another run meanwhile", "attack it again")
            result = Result.read(new.before)
            new.write_json(RESULT, replace(result, privacy={**result.privacy, **found}).values())
    return found


def _check(examiner: Examiner, opened: Opened, *, labelled: bool) -> None:
    """Refuse what cannot be attacked; of what a run was made to forget, say where classes may come from."""
    try:
        examiner.check(opened.federation)
    except BadInput as why:
        if labelled or not opened.run.result.erased:
            raise
        what = f"the run was made to forget classes ({str(why).partition(';')[0]})"
        raise BadInput(opened.run.path, what, "bring them with --attributes USERS") from why


def _labelled(data: Interactions, people: Path, audits: list[Audit]) -> Interactions:
    """The log of a run with the classes of a file: those that are attacked, or all."""
    from veilrec.lab.anyone.labels import labelled
    from veilrec.lab.attributes import read_attributes

    wanted = [name for audit in audits for name in audit.threat.attributes]
    return labelled(data, read_attributes(people, attributes=list(dict.fromkeys(wanted))))


def _print(place: Path, found: dict[str, Any]) -> None:
    from veilrec.cli.show.leaks import print_audit
    from veilrec.cli.show.tables import console

    console().print(f"{place}", style="bold", soft_wrap=True)
    for name, audit in found.items():
        print_audit(name, audit)
