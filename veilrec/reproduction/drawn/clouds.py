"""Clouds: users' vectors before and after, laid into the plane by t-SNE; as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilrec.erasers.leace import LEACE
from veilrec.recipe import Recipe
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.tables import Page
from veilrec.runs.erasing import user_vectors
from veilrec.runs.folder import MODEL, RECIPE, USERS, load_run

__all__ = ["Panel", "clouds_of", "draw_clouds", "drawing_of"]

SIDE, EDGE = 320, 28  # of a panel, and around it, in pixels
MOST = 1_500  # users in a panel: with more nobody sees any
TINY = 1e-9
STYLE = "font-family:system-ui,sans-serif;font-size:13px"


class Panel(NamedTuple):
    """The users of one run: where each is in the plane, and the class of each in their order, -1 unknown."""

    label: str
    place: NDArray[np.float64]
    code: NDArray[np.int64]


def drawing_of(paper: Paper, page: Page, out: Path) -> str:
    """The picture that a table asks for on a dataset, from the runs that are there; "" for none."""
    table, title = page.table, f"{paper.datasets[page.dataset].label}: {page.table.title}"
    if attribute := table.drawn.get(page.dataset):
        clouds = clouds_of(page, attribute, out)
        return draw_clouds(title, clouds) if clouds else ""
    return ""


def clouds_of(page: Page, attribute: str, out: Path) -> list[Panel]:
    """The vectors of the first seed of each row, laid into the plane by t-SNE; of runs that hold them."""
    found = []
    for row in page.ran:
        folder = out / page.dataset / row.method / "seed=0"
        if all((folder / name).is_file() for name in (MODEL, USERS)):
            vectors, code = _vectors(folder, attribute)
            found.append(Panel(row.label, _plane(vectors), code))
    return found


def _vectors(folder: Path, attribute: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vectors of a run's users, and their classes: as many as a panel holds, evenly from all."""
    run = load_run(folder)
    recipe = Recipe.load(run.manifest.path(RECIPE), has_data=False)
    federation = recipe.experiment(run.data).federation()
    run.state(federation)
    users, vectors = user_vectors(federation.fleet, LEACE().weights(federation.model))
    order = users.argsort()
    some = order[np.unique(np.linspace(0, len(users) - 1, min(MOST, len(users))).round().astype(int))]
    return vectors[some].double().numpy(), run.data.attributes[attribute][users[some]].numpy()


def _plane(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    if float(np.ptp(vectors, axis=0).max()) < TINY:
        return np.zeros((len(vectors), 2))  # all alike: there is nothing to lay apart
    from sklearn.manifold import TSNE  # which takes a second

    near = min(30.0, (len(vectors) - 1) / 3)
    laid: NDArray[np.float64] = TSNE(perplexity=near, init="pca", random_state=0).fit_transform(vectors)
    return laid


def draw_clouds(title: str, clouds: Sequence[Panel]) -> str:
    """Panels side by side, in each a dot for every user in the colour of its class."""
    count = 1 + max(int(cloud.code.max()) for cloud in clouds)
    wide, high = len(clouds) * (SIDE + EDGE) + EDGE, SIDE + 3 * EDGE
    parts = [_text(EDGE, 18, title, bold=True)]
    for place, cloud in enumerate(clouds):
        left = EDGE + place * (SIDE + EDGE)
        parts.append(_text(left, EDGE + 14, cloud.label))
        low, high_end = cloud.place.min(0), cloud.place.max(0)
        spot = (cloud.place - low) / np.maximum(high_end - low, 1e-9) * SIDE
        for number in range(count):
            own = spot[cloud.code == number]
            way = "".join(f"M{left + x:.0f} {2 * EDGE + SIDE - y:.0f}h0" for x, y in own)
            parts.append(f'<path d="{way}" stroke="{_colour(number, count)}"/>')
    return _page(wide, high, parts)


def _colour(number: int, count: int) -> str:
    return f"hsl({round(360 * number / max(count, 1)) + 210} 65% 45%)"


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" stroke="none" fill="#222"{weight}>{escape(text)}</text>'


def _page(wide: float, high: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" style="{STYLE}">'
    back = f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#fff"/>'
    dots = '<g fill="none" stroke-width="3.2" stroke-linecap="round" stroke-opacity=".75">'
    return "\n".join([head, back, dots, *parts, "</g></svg>", ""])
