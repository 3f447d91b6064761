"""The way to a file that a user names: through no link that came with what lies there, or from others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veilrec.base.plain import check_way
from veilrec.errors import BadInput

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: with a folder in it, a link to another one outside, and a link beside it."""
    for name in ("here/inner", "outside/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to("../outside")
    (tmp_path / "beside").symlink_to("outside")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(
    "way", ["link/o.html", "link/deep/o.html", "inner/../link/o.html", "link/../o.html", "./link/none/o.html"]
)
@pytest.mark.parametrize("whole", [False, True])
def test_below_the_working_folder_no_part_of_the_way_is_a_link(way: str, whole: bool, here: Path) -> None:
    with pytest.raises(BadInput, match=r"link: is a link, no folder; name the folder that it leads to"):
        check_way(here / way if whole else Path(way))


def test_a_link_is_found_where_the_working_folder_goes_by_another_name(here: Path) -> None:
    """As ``/tmp`` does that is ``/private/tmp``."""
    (here.parent / "alias").symlink_to("here")
    check_way(here.parent / "alias" / "inner" / "o.html")
    with pytest.raises(BadInput, match="is a link"):
        check_way(here.parent / "alias" / "link" / "o.html")


@pytest.mark.parametrize("way", ["o.html", "inner/o.html", "../o.html", "../beside/o.html", "none/o.html"])
def test_other_ways_are_free(way: str, here: Path) -> None:
    check_way(Path(way))
    check_way(here / way)


def test_a_file_of_its_own_is_no_link(here: Path) -> None:
    (here / "inner" / "o.html").symlink_to("elsewhere")
    with pytest.raises(BadInput, match=r"o\.html: is a link, no plain file"):
        check_way(Path("inner/o.html"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to give a link away")
def test_a_link_of_another_user_leads_nowhere(here: Path) -> None:
    os.chown(here.parent / "beside", 1234, 1234, follow_symlinks=False)
    with pytest.raises(BadInput, match="beside: is a link"):
        check_way(Path("../beside/o.html"))
