"""``python -m benchmarks`` is `run`."""

from __future__ import annotations

from benchmarks.run import main

raise SystemExit(main())
