"""The code blocks of README and docs/, and how each is run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
RUNNABLE = ("sh", "python")
_MARK = re.compile(r"<!-- (?P<kind>not run|shortened): ?(?P<text>.*?)-->")
_TITLE = re.compile(r'title="([^"]+)"')
_PAGE_MARK = re.compile(r"^<!-- with (the demo run|two runs) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    `not_run` is the reason that stands in a comment before the block; `shortened` are options that the comment adds to
    each `run` and `resume` in it; `title` is the file that the block's text is.
    """

    page: Path
    line: int
    language: str
    text: str
    title: str | None = None
    not_run: str | None = None
    shortened: str | None = None

    @property
    def place(self) -> str:
        """Page and line, as a person finds it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> Iterator[str]:
        """The lines of a shell block without comments; lines that end in a backslash go on in the next."""
        for line in self.text.replace("\\\n", " ").splitlines():
            command = re.sub(r"(^|\s)#.*", "", line).strip()
            if command:
                yield command


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    body: list[str] = []
    marks: dict[str, str] = {}
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if opened is not None and line.strip() == "```":
            found.append(_block(page, *opened, body, marks))
            opened, body, marks = None, [], {}
        elif opened is not None:
            body.append(line)
        elif line.startswith("```"):
            opened = number, line[3:].strip()
        elif mark := _MARK.fullmatch(line.strip()):
            marks[mark["kind"]] = mark["text"].strip()
        elif line.strip():
            marks = {}
    return found


def _block(page: Path, line: int, info: str, body: list[str], marks: dict[str, str]) -> Block:
    title = _TITLE.search(info)
    return Block(
        page=page,
        line=line,
        language=info.split(maxsplit=1)[0] if info else "",
        text="\n".join(body) + "\n",
        title=title and title[1],
        not_run=marks.get("not run"),
        shortened=marks.get("shortened"),
    )


def runs_wanted(page: Path) -> int:
    """How many finished runs lie in the page's folder before its blocks are run."""
    mark = _PAGE_MARK.search(page.read_text(encoding="utf-8"))
    if page.name == "README.md":
        return 1
    return {"the demo run": 1, "two runs": 2}[mark[1]] if mark else 0
