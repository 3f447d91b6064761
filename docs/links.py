"""Pages of papers, and links that lead out of docs/: they hold in the repository, and in the built pages too.

A page about a paper lies in its folder and is built beside the results. A link to any other file of the
repository becomes that file's name, since the built pages do not hold it. mkdocs calls `on_files` and
`on_page_markdown` (see mkdocs.yml).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = "docs"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def papers(root: Path = ROOT) -> dict[str, str]:
    """The page of each paper: its place in the repository, and the place where it is built."""
    found = sorted((root / "papers").glob("*/README.md"))
    return {path.relative_to(root).as_posix(): f"results/{path.parent.name}.md" for path in found}


def mended(text: str, place: str, root: Path = ROOT) -> str:
    """A page with its links as they hold among the built pages.

    Args:
        text: The page.
        place: Where it lies in the repository.
        root: The repository.
    """
    built = papers(root)
    here = posixpath.dirname(built.get(place, place.removeprefix(f"{DOCS}/")))

    def mend(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), link[3]))
        inside = built.get(target) or (
            target.removeprefix(f"{DOCS}/") if target.startswith(f"{DOCS}/") else ""
        )
        if not inside:
            return (
                f"{link[2]} (`{target}`)" if (root / target).exists() and target not in link[2] else link[2]
            )
        return f"{link[1]}[{link[2]}]({posixpath.relpath(inside, here or '.')}{link[4] or ''})"

    return LINK.sub(mend, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of papers, and their pictures: the hook that mkdocs calls."""
    from mkdocs.structure.files import File

    for source, place in papers().items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=mended(text, source)))
    return files


def on_page_markdown(text: str, *, page: Any, config: Any, files: Any) -> str:
    """Mend the links of a page that lies in docs/: the hook that mkdocs calls."""
    return text if page.file.generated_by else mended(text, f"{DOCS}/{page.file.src_uri}")
