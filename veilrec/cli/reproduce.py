"""``veilrec reproduce``: the tables of a paper, from ordinary runs that are made where they are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import DataDir, Device, Json, Plugins, Quiet, print_json
from veilrec.errors import BadInput

if TYPE_CHECKING:
    from veilrec.cli.work import RunOptions
    from veilrec.reproduction.cells import FinishedRuns, PaperCell
    from veilrec.reproduction.contents import Table
    from veilrec.reproduction.paper import Paper
    from veilrec.reproduction.results import Told
    from veilrec.reproduction.running import Failure

__all__ = ["reproduce"]

Which = Annotated[
    str, typer.Argument(metavar="PAPER", help="A paper, as in apm, or a folder with a paper.toml.")
]
Tables = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE…", help="Tables, as in table2 fig4, or all.")
]
Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Of the paper; by default its first. Repeatable."),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=1000, help="How many seeds: 0, 1, …")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where the runs lie; by default runs/PAPER.")
]
Jobs = Annotated[
    int, typer.Option("--jobs", min=1, max=256, help="Runs at once, each in a process of its own.")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="METHOD", help="Run this method alone; repeatable.")
]
NoExtra = Annotated[bool, typer.Option("--no-extra", help="Without the rows that the paper does not have.")]
Plan = Annotated[bool, typer.Option("--plan", help="Say what would be run and what is there, and stop.")]
NoRun = Annotated[bool, typer.Option("--no-run", help="Only show what the runs that are there give.")]
Light = Annotated[
    bool, typer.Option("--light", help="Keep of each run its result, not weights or transcript.")
]
Results = Annotated[
    Path | None, typer.Option("--results", metavar="FILE", help="Also write all of it as Markdown.")
]


def reproduce(
    paper: Which,
    tables: Tables = None,
    dataset: Datasets = None,
    seeds: Seeds = 3,
    out: Out = None,
    only: Only = None,
    no_extra: NoExtra = False,
    jobs: Jobs = 1,
    plan: Plan = False,
    no_run: NoRun = False,
    light: Light = False,
    results: Results = None,
    device: Device = "cpu",
    data_dir: DataDir = None,
    plugin: Plugins = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce tables of a paper: run what is missing, resume what was stopped, show ours beside theirs."""
    from veilrec.base.locks import writer_of
    from veilrec.base.plain import check_way
    from veilrec.cli.work import RunOptions
    from veilrec.experiment import check_device
    from veilrec.reproduction.cells import FinishedRuns, cells_of
    from veilrec.reproduction.paper import Paper

    loaded = Paper.load(paper)
    if not tables:
        raise BadInput("TABLE", "none is named", f"choose of: {', '.join([*loaded.tables, 'all'])}")
    chosen, names = loaded.chosen(tables), dataset or [next(iter(loaded.datasets))]
    place = out or Path("runs") / loaded.name
    named = [] if "all" in tables else list(chosen)
    cells = cells_of(loaded, chosen, names, seeds, place, only=only or (), named=named, extra=not no_extra)
    if plan:
        _print_plan(cells, as_json)
        return
    if results is not None:
        check_way(results)
        with writer_of(results):  # found out now, and not after hours
            pass
    failures: list[Failure] = []
    if not no_run:
        check_device(device)
        failures = _run(
            cells, jobs, RunOptions(device, resume=True, quiet=quiet), data_dir, plugin or [], light
        )
    _keep_floors(loaded, cells)
    with writer_of(results) if results is not None else nullcontext():  # what is read then is written last
        runs = FinishedRuns(place, seeds)
        told = _told(loaded, chosen, names, runs, extra=not no_extra, draws=results is not None)
        stale = _aged(cells)
        if results is not None:
            _write(loaded, told, results, (list(chosen), names, seeds, no_extra), stale)
    _show(loaded, told, stale, failures, as_json)
    if failures:
        _complain(failures)
        raise typer.Exit(failures[0].code)


def _run(
    cells: Sequence[PaperCell],
    jobs: int,
    job: RunOptions,
    data_dir: Path | None,
    plugins: list[Path],
    light: bool,
) -> list[Failure]:
    """The runs that are missing, here or in processes of their own; what failed."""
    from veilrec.cli.work import ExperimentMaker, one
    from veilrec.datasets.common import places
    from veilrec.reproduction.running import Failure, lighten, run_apart, run_here
    from veilrec.runs.folder import mend

    for cell in (cell for cell in cells if cell.finished):
        mend(cell.folder)
    todo = [cell for cell in cells if not cell.finished]
    for dataset in dict.fromkeys(cell.data for cell in todo):
        if dataset in places.PUBLISHED:
            places.find(dataset, data_dir)  # without it every cell would fail, one after the other
    _say(f"{len(cells)} runs: {len(cells) - len(todo)} finished, {len(todo)} to run", job.quiet)
    failures, able = [], []
    for cell in todo:  # a recipe that will not do is found before anything is run
        try:
            cell.check_place()
            cell.recipe(data_dir)
            able.append(cell)
        except BadInput as error:
            failures.append(Failure(cell.name, error.code, str(error)))
    shared = {cell.source for cell in able}  # what others begin with stays whole until they have ended

    def after(cell: PaperCell) -> None:
        if light and cell.folder not in shared:
            lighten(cell)

    def tell(text: str) -> None:
        _say(text, job.quiet)

    if jobs > 1:

        def command(cell: PaperCell) -> list[str]:
            return _command(cell, job.device, data_dir, plugins)

        failures += run_apart(able, jobs, command, tell, after)
        _lighten_shared(cells, light)
        return failures
    maker = ExperimentMaker(job.device)  # cells in a row that share their data share the log
    titles = {cell.name: f"{place} of {len(able)}: {cell.name}" for place, cell in enumerate(able, 1)}

    def here(cell: PaperCell) -> None:
        one(cell.recipe(data_dir), cell.folder, replace(job, trained=cell.source), titles[cell.name], maker)

    failures += run_here(able, here, tell, after)
    _lighten_shared(cells, light)
    return failures


def _lighten_shared(cells: Sequence[PaperCell], light: bool) -> None:
    """Lighten the runs that others have begun with, where all of these have ended."""
    from veilrec.reproduction.running import lighten

    if light and all(cell.finished for cell in cells):
        shared = {cell.source for cell in cells}
        for cell in (cell for cell in cells if cell.folder in shared):
            lighten(cell)


def _command(cell: PaperCell, device: str, data_dir: Path | None, plugins: list[Path]) -> list[str]:
    """``veilrec run`` of a cell, resumed where it was begun."""
    told = ["run", str(cell.file), "--out", str(cell.folder), "--resume", "--device", device, "--json"]
    told += ["--seed", str(cell.seed)]
    told += ["--trained", str(cell.source)] if cell.source is not None else []
    told += [word for text in cell.sets for word in ("--set", text)]
    told += ["--data-dir", str(data_dir)] if data_dir is not None else []
    return told + [word for path in plugins for word in ("--plugin", str(path))]


def _keep_floors(paper: Paper, cells: Sequence[PaperCell]) -> None:
    """Popularity on every resample of users, once for each dataset of which a run holds its data."""
    from veilrec.reproduction.popularity import keep_floor
    from veilrec.runs.world import WORLD

    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        mine = [cell for cell in cells if cell.dataset == dataset and cell.finished]
        held = next((cell.folder for cell in mine if (cell.folder / WORLD).is_file()), None)
        if held is not None:
            keep_floor(held.parents[1], held, paper.metric)


def _told(
    paper: Paper,
    chosen: dict[str, Table],
    names: list[str],
    finished: FinishedRuns,
    *,
    extra: bool,
    draws: bool,
) -> list[Told]:
    from veilrec.reproduction.claims import check
    from veilrec.reproduction.drawn.clouds import drawing_of
    from veilrec.reproduction.results import Told
    from veilrec.reproduction.sheets import sheets_of
    from veilrec.reproduction.tables import page_of

    found = []
    for dataset in names:
        for name, table in chosen.items():
            if not table.on(dataset):
                continue
            page = page_of(paper, name, dataset, finished, extra=extra)
            here = [one for one in table.claims if not one.datasets or dataset in one.datasets]
            claims = [check(paper, table, claim, dataset, finished) for claim in here]
            drawing = drawing_of(paper, page, finished.out) if draws else ""
            found.append(Told(page, sheets_of(paper, page), claims, drawing))
    return found


def _aged(cells: Sequence[PaperCell]) -> dict[str, str]:
    """Finished runs whose settings or audits are not those of their recipe any more: what differs."""
    from veilrec.reproduction.cells import other_audits, other_settings
    from veilrec.result import Result

    stale: dict[str, str] = {}
    for cell in (cell for cell in cells if cell.finished):
        result = Result.load(cell.folder)
        what = [*other_settings(cell, result), *other_audits(cell, result)]
        stale |= {cell.name: "; ".join(what)} if what else {}
    return stale


def _write(paper: Paper, told: list[Told], path: Path, asked: tuple[Any, ...], stale: dict[str, str]) -> None:
    from veilrec.base.files import atomic
    from veilrec.reproduction.results import markdown

    tables, datasets, seeds, no_extra = asked
    shown = " ".join(tables) if len(tables) < len(paper.tables) else "all"
    rest = f"--seeds {seeds}{' --no-extra' * no_extra}"
    commands = [f"veilrec reproduce {paper.name} {shown} --dataset {d} {rest}" for d in datasets]
    with atomic(path) as sink:
        sink.write(markdown(paper, told, commands, stale).encode())
    for one in (one for one in told if one.drawing):
        with atomic(path.with_name(one.picture)) as sink:
            sink.write(one.drawing.encode())


def _show(
    paper: Paper,
    told: list[Told],
    stale: dict[str, str],
    failures: list[Failure],
    as_json: bool,
) -> None:
    from veilrec.reproduction.results import plain

    if not as_json:
        from veilrec.cli.show.sheets import print_tables

        print_tables(paper, told, stale)
        return
    found = {
        "paper": paper.name,
        "tables": [plain(one) for one in told],
        "other_settings": stale,
        "failures": [failure._asdict() for failure in failures],
    }
    print_json(found)


def _print_plan(cells: Sequence[PaperCell], as_json: bool) -> None:
    if as_json:
        told = [
            {"run": str(c.folder), "state": c.state, "set": list(c.sets), "seconds": c.seconds} for c in cells
        ]
        print_json(told)
        return
    from veilrec.cli.show.tables import console, table

    shown = table("run", "state", "recipe", "changes")
    for cell in cells:
        begins = [f"takes over {cell.source.parent.name}"] if cell.source is not None else []
        shown.add_row(cell.name, cell.state, cell.file.name, " ".join([*begins, *cell.sets]))
    out = console()
    out.print(shown)
    out.print(f"{len(cells)} runs, {sum(cell.finished for cell in cells)} finished.{_takes(cells)}")


def _takes(cells: Sequence[PaperCell]) -> str:
    """How long the runs that are missing will take one processor, as far as somebody has measured it."""
    ahead = [cell.seconds for cell in cells if not cell.finished]
    known = [seconds for seconds in ahead if seconds is not None]
    if not known:
        return ""
    unknown = f", and {len(ahead) - len(known)} that nobody has timed" if len(known) < len(ahead) else ""
    return f" To run: {sum(known) / 3600:.1f} CPU hours{unknown}."


def _complain(failures: list[Failure]) -> None:
    for failure in failures:
        sys.stderr.write(f"{failure.cell} failed (code {failure.code}):\n{failure.said}\n\n")
    sys.stderr.write(f"veilrec: error: {len(failures)} runs failed; the same command tries them again\n")


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
