"""Advice: what to do after an audit, by how bad it is, with the commands as they can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from veilrec.metrics.vector_audits import VectorAudit, VectorFinding
from veilrec.report.audit.words import listed

__all__ = ["Advice", "advice"]

FEW = 4  # families of attackers, below which more may well find more
LIMIT = 0.6  # AUC that a pipeline is advised to let pass
WHOSE = ("--id=", "--vectors-id=", "--ids=", "--by-position", "--tensor=")  # what says whose row is whose
WRITTEN = ("--sep=", "--header", "--no-header", "--columns=", "--encoding=", "--escape=")


class Advice(NamedTuple):
    """One thing to do, and the command for it, if there is one."""

    text: str
    command: str = ""


def advice(audit: VectorAudit) -> list[Advice]:
    """What to do next."""
    leaks = [one for one in audit.findings if one.shown]
    return [*(_for_leaks(audit, leaks) if leaks else _for_none(audit)), *_for_the_audit(audit)]


def _for_leaks(audit: VectorAudit, leaks: Sequence[VectorFinding]) -> Iterator[Advice]:
    if grave := [one.attribute for one in leaks if one.severity in ("high", "medium")]:
        yield Advice(
            f"Treat these vectors as what they tell: personal data, with the {listed(grave)} of each user "
            "in it. Who may not see the one should not get the other."
        )
    if able := _erasable(audit, leaks):
        yield Advice(
            f"Take the {listed(able)} out of the vectors{_before(audit)}. Forget only what must go, for each "
            "attribute costs usefulness; measure that; delete the old file and its copies once you have:",
            _unlearn(audit, able),
        )
        yield from _compared(audit)
    if audit.values.get("control") is None:
        yield Advice(
            "Find out whether training on a person's own data puts it there, or it is true of anybody like "
            "them: give vectors of people on whom nothing was trained.",
            _again(audit, "--control", "CONTROL"),
        )
    yield Advice(
        f"Keep it from coming back: in a pipeline, this ends with exit code 5 above an AUC of {LIMIT}.",
        _again(audit, "--fail-above", f"{LIMIT}"),
    )


def _compared(audit: VectorAudit) -> Iterator[Advice]:
    """Both audits saved, and what changed between them; one command a file that the last one reads."""
    yield Advice("Save this audit, before the old file goes:", _again(audit, "--out", "before.json"))
    yield Advice("Audit what comes out in the same way:", _again(audit, "--out", "after.json", forgot=True))
    yield Advice("See what changed on the same people:", "veilrec compare before.json after.json")


def _for_none(audit: VectorAudit) -> Iterator[Advice]:
    yield Advice(
        f"Audit again after every training: in a pipeline, this ends with exit code 5 above AUC {LIMIT}.",
        _again(audit, "--fail-above", f"{LIMIT}"),
    )


def _for_the_audit(audit: VectorAudit) -> Iterator[Advice]:
    families = min((len(one.entry["verdict"]["families"]) for one in audit.findings), default=FEW)
    if families < FEW:
        count = "one family" if families == 1 else f"{families} families"
        yield Advice(f"Only {count} of attackers tried: with all of them, more may be found.")
    if any(not one.shown for one in audit.findings):
        yield Advice("Ask what an attacker finds who knows more:", _again(audit, "--known", "0.5"))


def _options(audit: VectorAudit) -> list[str]:
    """How the files were read, as options; none where there were no files."""
    return list(audit.values.get("options", ()))


def _files(audit: VectorAudit) -> tuple[str, str]:
    return audit.values["vectors"]["file"], audit.values["attributes"]["file"]


def _again(audit: VectorAudit, *more: str, forgot: bool = False) -> str:
    """The command of this audit with more options, or that of what `_unlearn` writes; none in Python."""
    (vectors, users), options = _files(audit), _options(audit)
    if forgot:
        vectors, options = _forgot(vectors), _kept(vectors, options)
    words = ["veilrec", "audit", vectors, "--attributes", users, *options, *more]
    return shlex.join(words) if "options" in audit.values else ""


def _erasable(audit: VectorAudit, leaks: Sequence[VectorFinding]) -> list[str]:
    """The leaks that are columns with classes: groups of numbers and amounts are none."""
    cut = [option.split("=")[1] for option in _options(audit) if option.startswith("--borders=")]
    return [one.attribute for one in leaks if one.leak.score == "auc" and one.attribute not in cut]


def _before(audit: VectorAudit) -> str:
    """What has to be done to the files before."""
    vectors, _ = _files(audit)
    steps = ["the array of users saved as npy"] if vectors.endswith(".npz") else []
    written = any(option.startswith(WRITTEN) for option in _options(audit))
    steps += ["the file about them written as CSV with a header"] if written else []
    return f", with {' and '.join(steps)}" if steps else ""


def _unlearn(audit: VectorAudit, attributes: Sequence[str]) -> str:
    vectors, users = _files(audit)
    named = [word for name in attributes for word in ("--attribute", name)]
    whose = [option for option in _kept(vectors, _options(audit)) if option.startswith(WHOSE)]
    files = [_array(vectors), "--attributes", users]
    words = ["veilrec", "unlearn", *files, *whose, *named, "-o", _forgot(vectors)]
    return shlex.join(words) if "options" in audit.values else ""


def _array(vectors: str) -> str:
    """The file of vectors that is unlearned: of several arrays, the one of users."""
    return f"{vectors.removesuffix('.npz')}.npy" if vectors.endswith(".npz") else vectors


def _forgot(vectors: str) -> str:
    """The file that comes out of it."""
    stem, dot, end = _array(vectors).rpartition(".")
    return f"{stem or end}-forgot{dot and dot + end}"


def _kept(vectors: str, options: Sequence[str]) -> list[str]:
    """The options without the name of an array, where the file has one alone."""
    alone = _array(vectors).endswith(".npy")
    return [option for option in options if not (alone and option.startswith("--tensor="))]
