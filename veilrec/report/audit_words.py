"""The words of an audit's page: what it concludes, what to do next, and what its terms mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from veilrec.metrics.vector_audits import VectorAudit, VectorFinding
from veilrec.metrics.words import out_of_100

__all__ = ["TERMS", "Advice", "advice", "conclusion", "doubts", "protocol"]

FEW = 4  # families of attackers, below which more may well find more
SHOWN = 12  # warnings of one page
LIMIT = 0.6  # AUC that a pipeline is advised to let pass

TERMS: Mapping[str, str] = {
    "AUC": "Of two users of different classes, how often the attacker ranks them right: 0.5 is a coin, "
    "1 is always.",
    "rank correlation": "How well guesses of an amount are in order: 0 is a coin, 1 is perfect order.",
    "severity": "By the way from chance to certainty: low up to a fifth of it (AUC 0.6), medium up to a half "
    "(AUC 0.75), high beyond. Nothing shown: the interval covers chance, or it may be luck.",
    "95 % interval": "Where the number would lie for other users like these.",
    "chance, guess": "What somebody reaches who sees no vector.",
    "shuffled labels": "What the same attacker reaches where the labels that it learned are dealt out anew: "
    "the size of its luck.",
    "p": "How often shuffled labels alone give a number as far from chance. Below 0.05 counts.",
    "TPR at 1 %": "The share of a class that is found while at most one in a hundred of the others is "
    "accused wrongly: of whom the attacker is sure.",
    "embeddings/logistic": "The name of an attacker: what it reads (the vectors), and how it learns.",
}
ASKED = {  # how an audit is made, as the page says it
    "verdict": "that of the attacker which was furthest from chance on known users that it had not learned "
    "from; the users attacked had no say in the choice",
    "intervals": "from resampling the users; audits of the same users with the same labels share resamples",
}


class Advice(NamedTuple):
    """One thing to do, and the command for it, if there is one."""

    text: str
    command: str = ""


def conclusion(audit: VectorAudit) -> list[str]:
    """What somebody should remember who reads nothing else."""
    leaks = [one for one in audit.findings if one.shown]
    rest = [one.attribute for one in audit.findings if not one.shown]
    if not audit.findings:
        return ["Nobody was attacked, so nothing is known."]
    if not leaks:
        families = max(len(one.entry["verdict"]["families"]) for one in audit.findings)
        who = f"None of {families} families of attackers" if families > 1 else "The only attacker never"
        caution = "another attacker, or one who knows more labels, may find it"
        return [
            f"{who} reads {_listed(rest, 'or')} from these vectors better than chance.",
            f"That is what was tried, and no proof: {caution}.",
        ]
    not_found = f"; {_listed(rest)} {'was' if len(rest) == 1 else 'were'} not found" if rest else ""
    return [
        f"{_listed([one.attribute for one in leaks])} can be read from these vectors{not_found}.",
        _worst(leaks),
    ]


def _worst(leaks: Sequence[VectorFinding]) -> str:
    """The worst leak, in a number that needs no statistics."""
    worst, classes = leaks[0], leaks[0].entry.get("classes") or []
    lead = f"The worst is {worst.attribute}" if len(leaks) > 1 else "How surely"
    if worst.leak.score != "auc":
        told = f"guesses are in order to {worst.leak.measure.value:.2f} of 1, where a coin reaches 0"
    else:
        two = [f"a {name}" for name in classes] if len(classes) == 2 else ["two users of different classes"]
        times = out_of_100(worst.leak.measure.value)
        told = f"given {' and '.join(two)}{' user' * (len(two) == 2)}, an attacker tells which is which "
        told += f"{times} times of 100, a coin 50"
    return f"{lead}: {told} (severity {worst.severity})."


def _listed(names: Sequence[str], word: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else "".join(names)


def doubts(audit: VectorAudit) -> list[str]:
    """What in the audit's own input would make its numbers mean something else."""
    said = [str(one["sentence"]) for one in audit.audit.get("soundness") or ()]
    said += [f"{note[:1].upper()}{note[1:]}." for note in audit.values["notes"]]
    for one in audit.findings:
        apart = one.entry.get("without_copies") or {}
        if told := (apart.get("verdict") or {}).get("sentence"):
            who = f"{apart['left_out']:g} of those attacked, of whom a copy is known"
            said.append(f"{one.attribute} without {who}: {told}")
    missed = [one for one in audit.audit.get("controls") or () if not one.get("passed")]
    if missed:
        names = ", ".join(str(one.get("control")) for one in missed)
        said.append(f"On made-up tables whose answers are known these attackers miss: {names}.")
    more = len(said) - SHOWN
    return [*said[:SHOWN], f"And {more} more, in the saved audit."] if more > 0 else said


def advice(audit: VectorAudit) -> list[Advice]:
    """What to do next, by how bad it is."""
    leaks = [one for one in audit.findings if one.shown]
    return [*(_for_leaks(audit, leaks) if leaks else _for_none(audit)), *_for_the_audit(audit)]


def _for_leaks(audit: VectorAudit, leaks: Sequence[VectorFinding]) -> Iterator[Advice]:
    if grave := [one.attribute for one in leaks if one.severity in ("high", "medium")]:
        yield Advice(
            f"Treat these vectors as what they tell: personal data, with the {_listed(grave)} of each user "
            "in it. Who may not see the one should not get the other."
        )
    classes = [one.attribute for one in leaks if one.leak.score == "auc"]
    if classes:
        yield Advice(
            f"Take the {_listed(classes)} out of the vectors, with the options by which this audit was made:",
            _unlearn(audit, classes),
        )
    yield Advice(
        "Audit what comes out in the same way, and see what changed on the same people:",
        "veilrec compare before.json after.json",
    )
    if audit.values.get("control") is None:
        yield Advice(
            "Find out whether training on a person's own data puts it there, or it is true of anybody like "
            "them: give vectors of people on whom nothing was trained.",
            _command(audit, "--control CONTROL"),
        )
    yield Advice(
        f"Keep it from coming back: in a pipeline, this ends with exit code 5 above an AUC of {LIMIT}.",
        _command(audit, f"--fail-above {LIMIT}"),
    )


def _for_none(audit: VectorAudit) -> Iterator[Advice]:
    yield Advice(
        f"Audit again after every training: in a pipeline, this ends with exit code 5 above AUC {LIMIT}.",
        _command(audit, f"--fail-above {LIMIT}"),
    )


def _for_the_audit(audit: VectorAudit) -> Iterator[Advice]:
    families = min((len(one.entry["verdict"]["families"]) for one in audit.findings), default=FEW)
    if families < FEW:
        count = "one family" if families == 1 else f"{families} families"
        yield Advice(f"Only {count} of attackers tried: leave --classifier out, and more may find more.")
    if any(not one.shown for one in audit.findings):
        yield Advice("Ask what an attacker finds who knows more:", _command(audit, "--known 0.5"))


def _command(audit: VectorAudit, more: str) -> str:
    vectors, users = audit.values["vectors"]["file"], audit.values["attributes"]["file"]
    return f"veilrec audit {vectors} --attributes {users} {more}"


def _unlearn(audit: VectorAudit, attributes: Sequence[str]) -> str:
    vectors, users = audit.values["vectors"]["file"], audit.values["attributes"]["file"]
    named = " ".join(f"--attribute {name}" for name in attributes)
    stem, dot, end = vectors.rpartition(".")
    return (
        f"veilrec unlearn {vectors} --attributes {users} {named} -o {stem or end}-forgot{dot and dot + end}"
    )


def protocol(audit: VectorAudit) -> dict[str, str]:
    """How it was measured, in words and values."""
    threat, found = audit.audit["threat"], audit.findings
    families = sorted({name for one in found for name in one.entry["verdict"]["families"]})
    draws = f"{threat['repeats']} times" if threat["repeats"] > 1 else "once"
    counts = [
        f"{one.attribute}: {one.entry['known']:,} known, {one.entry['targets']:,} attacked" for one in found
    ]
    return {
        "The attacker sees": str(audit.audit.get("sees", "")),
        "and knows": f"the attribute of {100 * threat['known']:.0f} % of the users, drawn {draws}",
        "Users": "; ".join(counts),
        "Families of attackers": ", ".join(families),
        "The verdict is": ASKED["verdict"],
        "Intervals are": ASKED["intervals"],
        "Seed": str(audit.values["seed"]),
    }
