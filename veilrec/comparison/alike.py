"""What must be alike before numbers stand side by side: data, split, protocol and threat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veilrec.comparison.groups import flat
from veilrec.comparison.measures import Run
from veilrec.errors import BadInput, nearest

__all__ = ["chosen_audit", "refuse_mixtures"]

OWN = "veilrec"  # the audit that is meant where nobody says which
FREE = ("also", "attributes", "by_part", "membership", "permutations", "resamples")  # they change no score


def refuse_mixtures(runs: Sequence[Run]) -> None:
    """Runs on other data, or scored in another way."""
    if not runs:
        raise BadInput("compare", "no runs", "name at least one run directory")
    first = runs[0]
    for run in runs[1:]:
        for what, one, other in (
            ("data", first.result.data_fingerprint, run.result.data_fingerprint),
            ("data split (data.split_seed)", _split_seed(first), _split_seed(run)),
            ("utility protocol", first.result.utility.protocol, run.result.utility.protocol),
            ("set of tested users", first.result.utility.users, run.result.utility.users),
        ):
            if one != other:
                told = _told(what, first, run, one, other)
                raise BadInput(
                    run.name, f"another {what} than {first.name}{told}", "compare what was measured alike"
                )


def _told(what: str, first: Run, run: Run, one: Any, other: Any) -> str:
    if what == "data":
        one, other = (each.result.data.get("name", "?") for each in (first, run))
        return f": {other}, not {one}" if one != other else f": both are {one}, with other events or users"
    return f": {other}; not {one}"


def _split_seed(run: Run) -> Any:
    return run.result.settings.get("data", {}).get("split_seed", 0)


def chosen_audit(runs: Sequence[Run], told: str) -> str:
    """The audit to show: as told, our own, or the only one that all runs have."""
    names = list(dict.fromkeys(name for run in runs for name in run.result.privacy))
    if told and told not in names:
        fix = nearest(told, names) if names else "attack the runs first: veilrec attack RUN"
        raise BadInput("--audit", f'no run has an audit "{told}"', fix)
    common = [name for name in names if all(name in run.result.privacy for run in runs)]
    if not told and OWN not in names and len(common or names) > 1:
        raise BadInput("--audit", f"several audits: {', '.join(names)}", "choose one with --audit NAME")
    chosen = told or (OWN if OWN in names else "".join(common or names))
    having = [run for run in runs if chosen in run.result.privacy]
    for run in having[1:]:
        _refuse_other_threat(having[0], run, chosen)
    return chosen


def _refuse_other_threat(first: Run, run: Run, audit: str) -> None:
    one, other = (each.result.privacy[audit] for each in (first, run))
    parts = [{**flat(each["threat"]), "grants": each.get("grants")} for each in (one, other)]
    for key in {**parts[0], **parts[1]}:
        mine, theirs = (part.get(key) for part in parts)
        if mine != theirs and not key.startswith(FREE):
            what = f"audit {audit} was made with another {key} than in {first.name}: {theirs}; not {mine}"
            raise BadInput(run.name, what, "attack both alike: veilrec attack RUN")
    for name in set(one["attributes"]) & set(other["attributes"]):
        mine, theirs = (each["attributes"][name] for each in (one, other))
        if mine.get("classes") != theirs.get("classes"):
            what = f"{name} has other classes than in {first.name}"
            raise BadInput(run.name, what, "compare runs on the same attributes")
        if (able := _families(mine)) != (others := _families(theirs)):
            what = f"{name} was attacked by {others or 'nobody'}, in {first.name} by {able or 'nobody'}"
            raise BadInput(run.name, what, "the worst of fewer looks safer: attack both alike")


def _families(attribute: Mapping[str, Any]) -> str:
    return ", ".join(sorted((attribute.get("verdict") or {}).get("families", ())))
