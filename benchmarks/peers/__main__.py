"""``python -m benchmarks.peers`` is `run` of this folder."""

from __future__ import annotations

from benchmarks.peers.run import main

raise SystemExit(main())
