"""An audit of anyone's vectors from end to end: what outsiders find, and what they find of a control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veilrec.lab.anyone.control import on_control
from veilrec.lab.anyone.outsider import Outsider, Progress
from veilrec.lab.match_ids import Audience
from veilrec.metrics.vector_audits import KIND, VERSION, VectorAudit

__all__ = ["audited"]


def audited(
    outsider: Outsider,
    audience: Audience,
    names: tuple[str, str],
    control: tuple[str, Audience] | None = None,
    tell: Progress | None = None,
    options: Sequence[str] | None = None,
) -> VectorAudit:
    """Attack an audience, and where there is a control, that as well.

    Args:
        outsider: Who attacks, and how.
        audience: Who is attacked.
        names: What the vectors and what is known about their users shall be called: no paths.
        control: People on whom nothing was trained, and what their vectors shall be called.
        tell: Called with ``(name, done, total)``.
        options: How the files were read, as somebody would type it again; None where there were none.
    """
    found = outsider.attack(audience, tell)
    if control is not None:
        beside = on_control(outsider, audience, control[1], found["attributes"])
        for name, entry in beside.items():
            found["attributes"][name]["control"] = entry
    about: dict[str, Any] = {"file": names[0], "users": len(audience.ids), "width": audience.vectors.shape[1]}
    values: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "vectors": about | ({"tensor": audience.tensor} if audience.tensor else {}),
        "attributes": {"file": names[1]},
        "seed": outsider.seed,
        "notes": [*audience.notes, *(control[1].notes if control else ())],
        "audit": found,
    }
    values |= {"control": {"file": control[0], "users": len(control[1].ids)}} if control else {}
    values |= {} if options is None else {"options": list(options)}
    return VectorAudit(values, names[0])
