"""The words of an audit's page: what it concludes, how it was made, and what its terms mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilrec.metrics.leaks import FEWER
from veilrec.metrics.vector_audits import VectorAudit, VectorFinding
from veilrec.metrics.words import out_of_100

__all__ = ["TERMS", "conclusion", "doubts", "least_p", "listed", "protocol", "terms"]

SHOWN = 12  # warnings of one page

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
    "logistic regression, …": "An attacker by how it learns; all of them read the vectors.",
}
ASKED = {  # how an audit is made, as the page says it
    "verdict": "that of the attacker which was furthest from chance on known users that it had not learned "
    "from; the users attacked had no say in the choice, so another attacker may be further from "
    "chance on them",
    "intervals": "from resampling the users; audits of the same users with the same labels share resamples",
}


def terms(audit: VectorAudit) -> dict[str, str]:
    """The terms of one page: those of amounts only where an amount was attacked."""
    amounts = any(one.leak.score != "auc" for one in audit.findings)
    return {term: told for term, told in TERMS.items() if amounts or term != "rank correlation"}


def least_p(audit: VectorAudit) -> float:
    """The smallest p-value that it could find: by the number of deals, and twice that over several draws."""
    threat = audit.audit["threat"]
    dealt = threat.get("permutations")
    return (1 if threat["repeats"] == 1 else 2) / (dealt + 1) if dealt else 0.0


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
            f"{who} reads {listed(rest, 'or')} from these vectors better than chance.",
            f"That is what was tried, and no proof: {caution}.",
        ]
    not_found = f"; {listed(rest)} {'was' if len(rest) == 1 else 'were'} not found" if rest else ""
    return [
        f"These vectors give away {listed([one.attribute for one in leaks])}{not_found}.",
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


def listed(names: Sequence[str], word: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else "".join(names)


def doubts(audit: VectorAudit) -> list[str]:
    """What in the audit's own input would make its numbers mean something else."""
    said = [str(one["sentence"]) for one in audit.audit.get("soundness") or ()]
    said += [f"{note[:1].upper()}{note[1:]}." for note in audit.values["notes"]]
    for one in audit.findings:
        for fewer, who in FEWER.items():
            apart = one.entry.get(fewer) or {}
            if told := (apart.get("verdict") or {}).get("sentence"):
                said.append(f"{one.attribute} without {apart['left_out']:g} of those attacked, {who}: {told}")
    missed = [one for one in audit.audit.get("controls") or () if not one.get("passed")]
    if missed:
        names = ", ".join(str(one.get("control")) for one in missed)
        said.append(f"On made-up tables whose answers are known these attackers miss: {names}.")
    more = len(said) - SHOWN
    return [*said[:SHOWN], f"And {more} more, in the saved audit."] if more > 0 else said


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
