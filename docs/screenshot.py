"""The picture of a report in the README: the demo in a browser without a window, light and dark.

``python -m docs.screenshot`` writes ``docs/pictures/report-light.png`` and ``report-dark.png``; it needs
the extra `dev` and a Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from veilrec.cli import main as veilrec

FOLDER = Path(__file__).parent / "pictures"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, HIGH, SCALE = 1280, 834, 0.8  # down to the legend, above the sentence under it
MOST = 150_000  # bytes that a picture may have


def taken(report: Path, folder: Path) -> list[Path]:
    """The first screen of a report in both themes."""
    place = next(filter(None, map(shutil.which, NAMES)), None)
    found = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=place, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": WIDE, "height": HIGH}, device_scale_factor=SCALE, color_scheme=theme
            )
            page.goto(report.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            path = folder / f"report-{theme}.png"
            page.screenshot(path=path)
            found.append(path)
        browser.close()
    return found


def main() -> int:
    """Run the demo where nothing is kept, and take the pictures."""
    with tempfile.TemporaryDirectory() as place:
        code = veilrec(["demo", "--quiet", "--out", place])
        if code:
            return code
        for path in taken(Path(place) / "report.html", FOLDER):
            size = path.stat().st_size
            print(f"{path.name}: {size:,} bytes")
            if size > MOST:
                print(f"more than {MOST:,}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
