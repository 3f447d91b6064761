"""Likeness of two runs: data, split, protocol and threat, before numbers stand side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from veilrec.errors import BadInput, nearest
from veilrec.metrics.groups import flat, seed_of
from veilrec.metrics.leaks import BEFORE, RULE, NamedRun, of_before
from veilrec.result import Result

__all__ = ["attackers_of", "chosen_audit", "of_one_log", "refuse_mixtures", "threat_of", "unlike"]

OWN = "veilrec"  # the audit that is meant where nobody says which
# They change no score:
FREE = ("along", "also", "attributes", "by_part", "membership", "own", "permutations", "resamples")
TRIED = "attackers on "
LENT = {"recovered"}  # readings of what only a defence uploads: without one nobody can try
EVENTS = ("name", "users", "items", "events", "training", "validation", "test")
COUNTED = {
    "kind": "kind",
    "classes": "classes",
    "counts": "numbers of users by class",
    "known": "number of known users",
    "targets": "number of attacked users",
}


def refuse_mixtures(runs: Sequence[NamedRun]) -> None:
    """Runs on other data, or scored in another way."""
    if not runs:
        raise BadInput("compare", "no runs", "name at least one run directory")
    first = runs[0]
    for run in runs[1:]:
        for what, one, other in (
            ("data", first.result.data_fingerprint, run.result.data_fingerprint),
            ("data split (data.split_seed)", _split_seed(first.result), _split_seed(run.result)),
            ("utility protocol", first.result.utility.protocol, run.result.utility.protocol),
            ("set of tested users", first.result.utility.users, run.result.utility.users),
        ):
            if one != other:
                told = _told(what, first, run, one, other)
                raise BadInput(
                    run.name, f"another {what} than {first.name}{told}", "compare what was measured alike"
                )


def of_one_log(runs: Iterable[NamedRun]) -> list[NamedRun]:
    """The same runs; those that were made to forget have the hash of data of the run that they come from.

    That hash counts classes, and one of before would lead back to those that were forgotten: such a run is
    known again by its events, and by what popularity reaches on them.
    """
    every = list(runs)
    whole = {_events(run.result): run.result.data_fingerprint for run in every if not run.result.erased}
    return [NamedRun(run.name, _known_by(run.result, whole)) if run.result.erased else run for run in every]


def _known_by(result: Result, whole: Mapping[str, str]) -> Result:
    return replace(result, data_fingerprint=whole.get(_events(result), _events(result)))


def _events(result: Result) -> str:
    counts = [result.data.get(name) for name in EVENTS]
    return json.dumps([counts, dict(result.utility.floor), result.utility.protocol])


def _told(what: str, first: NamedRun, run: NamedRun, one: Any, other: Any) -> str:
    if what == "data":
        one, other = (each.result.data.get("name", "?") for each in (first, run))
        return f": {other}, not {one}" if one != other else f": both are {one}, with other events or users"
    return f": {other}; not {one}"


def chosen_audit(runs: Sequence[NamedRun], told: str) -> str:
    """The audit to show: as told, our own, or the only one that all runs have; of a single run the first."""
    names = list(dict.fromkeys(name for run in runs for name in run.result.privacy))
    if told and told not in names:
        fix = nearest(told, names) if names else "attack the runs first: veilrec attack RUN"
        raise BadInput("--audit", f'no run has an audit "{told}"', fix)
    chosen = told or _meant(runs, names)
    _refuse_other_audits([run for run in runs if chosen in run.result.privacy], chosen)
    return chosen


def _meant(runs: Sequence[NamedRun], names: Sequence[str]) -> str:
    """The audit that is meant where nobody says which; of several that are no worse, none."""
    if OWN in names:
        return OWN
    common = [name for name in names if all(name in run.result.privacy for run in runs)] or names
    if len(common) > 1 and len(runs) > 1:
        raise BadInput("--audit", f"several audits: {', '.join(names)}", "choose one with --audit NAME")
    return next(iter(common), "")


def _refuse_other_audits(runs: Sequence[NamedRun], audit: str) -> None:
    """Every run against the first, and against the first of its seed."""
    first: dict[Any, NamedRun] = {}
    for run in runs:
        for one in (runs[0], first.setdefault(seed_of(run.result), run)):
            if what := unlike(one.result, run.result, audit):
                what = f"audit {audit} was not made as in {one.name}: {what}"
                raise BadInput(run.name, what, "attack both alike: veilrec attack RUN")


def unlike(one: Result, other: Result, audit: str, attribute: str = "") -> str:
    """Name what keeps the audits of two runs from being compared; empty where nothing does.

    With `attribute` only what concerns that one. Runs of one seed are a pair, so that their audits must have
    drawn the same known users and given attackers the same luck.
    """
    sides = _sides(one, other, audit, attribute)
    return next((_said(what, mine, theirs) for what, mine, theirs in sides if mine != theirs), "")


def _said(what: str, mine: Any, theirs: Any) -> str:
    """``another known: 0.5; not 0.2``; of long lists only what differs."""
    if what == "data":
        return "other data"
    if what.startswith(TRIED):
        more, fewer = Counter(theirs) - Counter(mine), Counter(mine) - Counter(theirs)
        told = {"with": more.elements(), "without": fewer.elements()}
        said = [f"{how} {names}" for how, each in told.items() if (names := ", ".join(each))]
        return f"other {what}: {', '.join(said)}"
    return f"another {what}: {_plain(theirs)}; not {_plain(mine)}"


def _sides(one: Result, other: Result, audit: str, attribute: str) -> Iterator[tuple[str, Any, Any]]:
    """Everything that must be the same: what it is, in the one, in the other."""
    first, second = (result.privacy[audit] for result in (one, other))
    yield "data", one.data_fingerprint, other.data_fingerprint
    yield "data split (data.split_seed)", _split_seed(one), _split_seed(other)
    yield "set of tested users", one.utility.users, other.utility.users
    mine, theirs = threat_of(first), threat_of(second)
    yield from ((key, mine.get(key), theirs.get(key)) for key in {**mine, **theirs})
    if seed_of(one) == seed_of(other):
        yield "seed of the audit", first.get("seed", seed_of(one)), second.get("seed", seed_of(other))
    for name in _both(first, second, attribute):
        entries = [each["attributes"][name] for each in (first, second)]
        for key, what in COUNTED.items():
            yield f"{what} of {name}", entries[0].get(key), entries[1].get(key)
        read = [{_reads(one) for one in entry.get("attackers") or ()} for entry in entries]
        lent = LENT & (read[0] ^ read[1])  # in one of the two alone
        yield f"{TRIED}{name}", attackers_of(entries[0], lent), attackers_of(entries[1], lent)


def threat_of(audit: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an audit that can change a score, with what it grants."""
    told = {key: value for key, value in flat(audit.get("threat") or {}).items() if not key.startswith(FREE)}
    rule = BEFORE if of_before(audit) else RULE
    oracle = bool(audit.get("oracle"))
    return {**told, "grants": list(audit.get("grants") or ()), "oracle": oracle, "rule of verdicts": rule}


def attackers_of(entry: Mapping[str, Any], without: Collection[str] = ()) -> list[str]:
    """Names of an audit's attackers: ``updates/logistic (linear)``; the order says nothing."""
    tried = sorted(_attacker(one) for one in entry.get("attackers") or () if _reads(one) not in without)
    families = sorted(map(str, (entry.get("verdict") or {}).get("families", ())))
    return [*tried, *(f"family {name}" for name in families)]


def _reads(one: Mapping[str, Any]) -> str:
    return str(one.get("reads", ""))


def _attacker(one: Mapping[str, Any]) -> str:
    parts = "+".join(map(str, one.get("parts") or ()))
    reads = f"{one.get('reads', '')}{f'[{parts}]' if parts else ''}"
    who = one.get("classifier") or one.get("name", "")
    return f"{reads}/{who} ({one.get('family', '')})" if reads else f"{who} ({one.get('family', '')})"


def _both(first: Mapping[str, Any], second: Mapping[str, Any], attribute: str) -> list[str]:
    there = [name for name in first.get("attributes") or {} if name in (second.get("attributes") or {})]
    return [name for name in there if attribute in ("", name)]


def _plain(value: Any) -> str:
    """A setting in one line: the entries of a list, or ``nothing`` for an empty one."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _split_seed(result: Result) -> Any:
    return (result.settings.get("data") or {}).get("split_seed", 0)
