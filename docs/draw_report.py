"""Draws the picture of README: a run's report on a screen and on a phone, side by side, as one PNG.

python docs/draw_report.py RUN FILE.png
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import tuner
from tuner.html_report import report_html

SCREEN, PHONE = (1120, 860), (390, 860)  # width and height in pixels
DRAWING = 1000  # milliseconds that plotly gets to draw what came into view
GAP = 24  # between the two
COLOURS = 128  # of the PNG, which keeps it small


def main(run: str, file: str) -> None:
    """Draw the report of the newest run there."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        page.write_text(report_html(tuner.load_run(run)), encoding="utf-8")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        views = [photographed(browser, page, SCREEN), photographed(browser, page, PHONE, at="#going")]
    side_by_side(views).quantize(COLOURS).save(file, optimize=True)


def photographed(browser: Browser, page: Path, size: tuple[int, int], at: str = "body") -> Image.Image:
    """The page in a window of that size, scrolled to where the element `at` begins."""
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme="light")
    tab.goto(page.as_uri())
    tab.eval_on_selector("#going", "element => element.scrollIntoView()")  # figures are drawn as they come into view
    tab.wait_for_selector(".js-plotly-plot .main-svg")
    tab.eval_on_selector(at, "element => element.scrollIntoView()")
    tab.wait_for_timeout(DRAWING)
    picture = tab.screenshot()
    tab.close()
    return Image.open(io.BytesIO(picture)).convert("RGB")


def side_by_side(views: list[Image.Image]) -> Image.Image:
    """The pictures next to each other on a grey ground."""
    width = sum(view.width for view in views) + GAP * (len(views) + 1)
    whole = Image.new("RGB", (width, max(view.height for view in views) + 2 * GAP), "#d8dade")
    left = GAP
    for view in views:
        whole.paste(view, (left, GAP))
        left += view.width + GAP
    return whole


if __name__ == "__main__":
    main(*sys.argv[1:])
