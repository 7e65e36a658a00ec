"""What a report of 1,000 trials of 50 epochs costs a browser: CPU seconds of its page's process and main thread.

A page is opened at 1400 by 900 in Chromium, without a reader who does anything, until its figures can be printed; then
it is scrolled to its end. Reports that are named are measured in turns, to be compared; without any one is written.

    python benchmarks/report_page.py [REPORT.html ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.html_report.browsing import CHROMIUM
from tests.results.kinds_of_runs import thousand_of_fifty
from tuner.html_report import write_report

TIMES = 5
SETTLED_MS = 1500  # after which nothing is done any more
TICK = os.sysconf("SC_CLK_TCK")


def seconds(stat: Path) -> float:
    """CPU time, of user and system, that /proc tells of a process or a thread."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def renderers() -> set[Path]:
    """Processes that draw pages."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (process / "cmdline").read_bytes():
                found.add(process)
        except OSError:
            continue  # it has ended
    return found


def told(process: Path) -> str:
    main = seconds(process / "task" / process.name / "stat")
    return f"{seconds(process / 'stat'):.2f} s, main thread {main:.2f} s"


def measure(browser: Any, report: str) -> None:
    before = renderers()
    page: Page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.goto(f"file://{report}", wait_until="commit")
    while not page.evaluate("document.documentElement.dataset.printable"):  # a selector is looked for in each frame
        page.wait_for_timeout(200)
    page.wait_for_timeout(SETTLED_MS)
    process = max(renderers() - before, key=lambda one: seconds(one / "stat"))
    opened = told(process)
    page.mouse.move(700, 400)
    while page.evaluate("scrollY + innerHeight < document.documentElement.scrollHeight - 1"):
        page.mouse.wheel(0, 500)
        page.wait_for_timeout(100)
    page.wait_for_timeout(SETTLED_MS)
    print(f"{report}: opened {opened}; scrolled to its end {told(process)}; load {os.getloadavg()[0]:.0f}", flush=True)
    page.context.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        reports = sys.argv[1:] or [write_report(thousand_of_fifty(Path(folder)))]
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        for _ in range(TIMES):
            for report in reports:
                measure(browser, str(Path(report).resolve()))


if __name__ == "__main__":
    main()
