"""``veilrec apm``: how much noise APM gives each part of a model; and the order that an attack finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    Data,
    DataDir,
    Device,
    Json,
    Plugins,
    Quiet,
    Runs,
    check_device,
    load_plugins,
)
from veilrec.errors import BadInput, nearest

if TYPE_CHECKING:
    from veilrec.attack import Public
    from veilrec.defences.apm import APM
    from veilrec.lab.calibration import Calibration, Found, Share

__all__ = ["apm"]

ORDER = "section-5.7, equation-11, or components from the least to the most resistant: user,item"
Calibrate = Annotated[bool, typer.Option("--calibrate", help="Attack each component, and rank them by that.")]
Order = Annotated[str, typer.Option("--order", metavar="NAME", help=f"{ORDER}.")]
Of = Annotated[
    list[str] | None,
    typer.Option("--component", metavar="PART=NAME", help="What a part stands for; repeatable."),
]
Wanted = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="NAME", help="What is attacked; by default everything; repeatable."),
]
Known = Annotated[
    float | None, typer.Option(help="Share of users whose label is known to the attack; by default 0.2.")
]
KNOWN = 0.2
Source = tuple[Path | None, Path | None, str]


def apm(
    runs: Runs,
    calibrate: Calibrate = False,
    order: Order = "section-5.7",
    component: Of = None,
    clip: Annotated[float, typer.Option(help="Bound on a weight, δ.")] = 0.5,
    low: Annotated[float, typer.Option(help="ε of the least resistant component.")] = 30.0,
    high: Annotated[
        float | None, typer.Option(help="ε of the most resistant component; by default twice --low.")
    ] = None,
    attribute: Wanted = None,
    known: Known = None,
    data: Data = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the noise that APM would add to a finished run's model, part by part; with --calibrate, measure
    which component resists attribute inference least, over all runs that are named."""
    load_plugins(plugin)
    check_device(device)
    from dataclasses import replace

    from veilrec.lab.calibration import allocation
    from veilrec.lab.threat import Threat

    _check_attack(calibrate, attribute, known)
    defence = _defence(order, component or (), clip=clip, low=low, high=high)
    share = KNOWN if known is None else known
    threat = Threat(attributes=tuple(attribute or ()), known=share) if calibrate else None
    places = _places(runs)
    public, found = _open(places, defence, threat, (data, data_dir, device), quiet=quiet)
    measured = None if threat is None else _calibrated(found, public, defence)
    if measured is not None:
        paper, defence = defence, replace(defence, order=tuple(measured.order))
    shares = allocation(public, defence)
    if as_json:
        print(json.dumps(_plain(places, shares, measured, found), indent=2, ensure_ascii=False))
    elif measured is None:
        _print_shares(shares, defence)
    else:
        _print_measured(measured, found, paper)
        _print_shares(shares, defence)
        _print_recipe(defence)


def _check_attack(calibrate: bool, attribute: list[str] | None, known: float | None) -> None:
    """Options of the attack, without which they would do nothing."""
    for option, given in (("--attribute", bool(attribute)), ("--known", known is not None)):
        if given and not calibrate:
            raise BadInput(option, "nothing is attacked without --calibrate", "add --calibrate, or drop it")


def _defence(order: str, components: Any, **amounts: Any) -> APM:
    """APM as the options have it."""
    from veilrec.defences.apm import APM, COMPONENTS, ORDERS

    ranking: Any = order if order in ORDERS else tuple(name.strip() for name in order.split(","))
    for name in ranking if isinstance(ranking, tuple) else ():
        if name not in COMPONENTS:
            raise BadInput(
                "--order", f'no order or component "{name}"', nearest(name, [*ORDERS, *COMPONENTS])
            )
    mapping = dict(entry.partition("=")[::2] for entry in components)
    for part, name in mapping.items():
        if name not in COMPONENTS:
            what = f'"{name}" for part "{part}" is no component'
            raise BadInput("--component", what, nearest(name, COMPONENTS))
    return APM(order=ranking, components=mapping, **amounts)


def _places(runs: list[Path]) -> list[Path]:
    """The finished runs that are meant: they may differ by their seed and in nothing else."""
    from veilrec.metrics.comparison import Run, grouped
    from veilrec.recipe.cells import runs_in
    from veilrec.result import Result

    places = [found for run in runs for found in runs_in(run)]
    groups = grouped([Run(str(place), Result.load(place)) for place in places])
    if len(groups) > 1:
        names = ", ".join(label for label, _, _ in groups)
        raise BadInput("RUN", f"several kinds of runs: {names}", "name runs that differ by their seed alone")
    return places


def _open(
    places: list[Path], defence: APM, threat: Any, source: Source, *, quiet: bool
) -> tuple[Public, list[dict[str, Found]]]:
    """What everybody knows of the model; under a threat also what each run gives away, by component."""
    from veilrec.cli import finished
    from veilrec.cli.show.progress import showing
    from veilrec.engine.probe import public, see
    from veilrec.lab.calibration import components_of, leaks, undefended
    from veilrec.lab.trials import People

    found: list[dict[str, Found]] = []
    for place in places if threat is not None else places[:1]:
        with showing("", str(place), quiet=quiet) as progress:
            progress.phase("opening")
            opened = finished.reopen(place, *source)
            known = public(opened.federation)
            if threat is None:
                continue
            undefended(opened.federation, str(place))
            parts = components_of(known, defence.components)
            seen, people = see(opened.federation, opened.state), People.of(opened.run.data)
            seed = opened.run.result.settings["seed"]

            def tell(name: str, done: int, total: int, told: Any = progress) -> None:
                told(f"attack on {name}", done, total, None)

            found.append(leaks(seen, people, parts, threat, seed, tell))
    return known, found


def _calibrated(found: list[dict[str, Found]], public: Public, defence: APM) -> Calibration:
    from veilrec.lab.calibration import calibrated, components_of

    return calibrated(found, components_of(public, defence.components))


def _print_shares(shares: list[Share], defence: APM) -> None:
    from veilrec.cli.show.leaks import printable
    from veilrec.cli.show.tables import console, table

    shown = table("part", "component", "l", "ε", "λ", right=("l", "ε", "λ"))
    for one in shares:
        numbers = (str(one.place), f"{one.epsilon:g}", f"{one.scale:.4f}")
        shown.add_row(printable(one.part), one.component, *numbers)
    how = defence.order if isinstance(defence.order, str) else ", ".join(defence.order)
    console().print(shown)
    console().print(f"APM with δ = {defence.clip:g} and order {how}; ε is that of one value.", style="dim")


def _print_measured(measured: Calibration, found: list[dict[str, Found]], paper: APM) -> None:
    from veilrec.cli.show.leaks import measure, printable
    from veilrec.cli.show.tables import console, table

    attributes = list(measured.components[0].attributes)
    heads = [f"{printable(name)} (AUC)" for name in attributes]
    named = paper.order if isinstance(paper.order, str) else ", ".join(paper.order)
    right = (*heads, "score [95 %]", "l measured", f"l by {named}")
    shown = table("component", "parts", *right, right=right)
    for place, one in enumerate(measured.components):
        given = paper.ranking.index(one.name) if one.name in paper.ranking else None
        numbers = [f"{one.attributes[name]:.3f}" for name in attributes]
        score = measure(one.score._asdict())
        last = "–" if given is None else str(given)
        shown.add_row(one.name, printable(", ".join(one.parts)), *numbers, score, str(place), last)
    out = console()
    out.print(shown)
    runs = "one run" if len(found) == 1 else f"{len(found)} runs"
    told = "how far the worst attacker's AUC is from chance, on average over the attributes"
    out.print(f"Score: {told}; {runs}.", style="dim")
    for first, second in measured.unsure:
        out.print(f"{first} and {second} cannot be told apart: their difference may be zero.", style="yellow")


def _print_recipe(defence: APM) -> None:
    from veilrec.base import toml
    from veilrec.cli.show.tables import console

    out = console()
    out.print("For a recipe:", style="bold")
    out.print(toml.write({"defence": [_settings(defence)]}).strip(), soft_wrap=True)


def _settings(defence: APM) -> dict[str, Any]:
    """What a recipe has to say: the order, and whatever is not the default."""
    from veilrec.defences.apm import APM

    usual = APM()
    told = {name: getattr(defence, name) for name in ("clip", "low", "high")}
    changed = {name: value for name, value in told.items() if value != getattr(usual, name)}
    mapping = {"components": dict(defence.components)} if defence.components else {}
    return {"name": "APM", "order": list(defence.order), **changed, **mapping}


def _plain(
    places: list[Path], shares: list[Share], measured: Calibration | None, found: list[dict[str, Found]]
) -> Any:
    """Everything for machines."""
    plain = {"runs": [str(place) for place in places], "allocation": [one._asdict() for one in shares]}
    if measured is None:
        return plain
    components = [
        {**one._asdict(), "score": one.score._asdict(), "attackers": _attackers(found, one.name)}
        for one in measured.components
    ]
    return {
        **plain,
        "order": measured.order,
        "components": components,
        "differences": [one._asdict() for one in measured.differences],
        "unsure": measured.unsure,
    }


def _attackers(found: list[dict[str, Found]], component: str) -> list[dict[str, str]]:
    """Run by run, who reached the score on each attribute."""
    return [{name: who for name, (_, who) in run[component].attributes.items()} for run in found]
