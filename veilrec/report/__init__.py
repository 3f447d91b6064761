"""Reports: one self-contained HTML page from results alone, made for looking; and its numbers as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veilrec.errors import BadInput
from veilrec.metrics.vector_audits import VectorAudit
from veilrec.report.exports import table, to_csv
from veilrec.result import Result

__all__ = ["render", "render_audit", "table", "to_csv"]


def render(
    results: Sequence[tuple[str, Result]], *, title: str = "", receipts: Mapping[str, Any] | None = None
) -> str:
    """A page that opens offline and asks nobody for anything.

    Args:
        results: Runs by name, as they shall be called. Those that differ only by seed become one, with a mean
            and an interval; those of different data or utility protocols are kept apart.
        title: The heading; without one, the data are named.
        receipts: Of erasures on request, by the name of the run: each has a part of its own.

    Raises:
        BadInput: Where there is nothing to report.
        Corrupted: Where a receipt cannot be read.
    """
    if not results:
        raise BadInput("report", "no runs to report", "name at least one finished run")
    from veilrec.report.page import page

    return page(results, title, receipts or {})


def render_audit(audit: VectorAudit, *, title: str = "") -> str:
    """A page of an audit of vectors, which opens offline, runs nothing and asks nobody for anything."""
    from veilrec.report.audit.page import audit_page

    return audit_page(audit, title)
