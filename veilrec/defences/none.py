"""None: no defence at all, with which every defence is compared.

Paper: none.
Acts at: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilrec.defence import Defence

__all__ = ["Undefended"]


@dataclass(frozen=True)
class Undefended(Defence):
    """Devices send what their protocol asks for, as it is.

    >>> [hook for hook in ("prepare", "attach", "penalty", "on_upload") if Undefended().acts(hook)]
    []
    """
