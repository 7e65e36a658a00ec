"""The website that `make docs` builds: no warning, no dead link, nothing fetched from another site."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Elements(HTMLParser):
    """Ids, links, and addresses that a browser loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(found[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Elements]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return {path: Elements(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}


def test_every_link_leads_to_a_page_and_a_place_in_it(site: dict[Path, Elements]) -> None:
    dead = []
    for path, page in site.items():
        if path.name == "404.html":  # its links are from the root of the site
            continue
        for link in page.links:
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            there = (path.parent / target).resolve() if target else path
            if there not in site or (anchor and anchor not in site[there].ids):
                dead.append(f"{path.name}: {link}")
    assert len(site) > 30
    assert dead == []


def test_a_page_loads_nothing_from_another_site(site: dict[Path, Elements]) -> None:
    loaded = {address for page in site.values() for address in page.loaded}
    assert any(address.endswith("style.css") for address in loaded)
    assert {address for address in loaded if "://" in address or address.startswith("//")} == set()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_the_files_at_the_root_link_to_files_and_headings_that_exist(name: str) -> None:
    for link in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        assert (ROOT / target).exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (ROOT / target).read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, link
