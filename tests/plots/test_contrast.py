"""Whether lines, marks and text are seen on a light page and on the dark one: ratios after WCAG 2.2."""

import math
import re
from collections.abc import Callable
from importlib.resources import files
from itertools import combinations

import pytest

from tests.results.kinds_of_runs import QUICK
from tuner import Run
from tuner.plots import Plots
from tuner.plots.figure import CATEGORIES, COLOURS, GREY, SCALE, SECOND, THEMES

LINES, TEXT = 3.0, 4.5


def pages() -> dict[str, str]:
    """The backgrounds of the report, as its style has them."""
    style = (files("tuner.html_report") / "assets" / "style.css").read_text()
    found = re.search(r"--page: light-dark\((#\w+), (#\w+)\)", style)
    assert found is not None
    return {"light": found[1], "dark": found[2]}


PAGES = pages()


def luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def between(first: str, second: str, share: float) -> str:
    channels = [(int(first[p : p + 2], 16), int(second[p : p + 2], 16)) for p in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in channels)


@pytest.mark.parametrize("theme", PAGES)
def test_lines_and_marks_are_seen_on_both_pages(theme: str) -> None:
    steps = [between(SCALE[i][1], SCALE[i + 1][1], k / 8) for i in range(len(SCALE) - 1) for k in range(9)]  # type: ignore[arg-type]
    for colour in (*COLOURS.values(), *CATEGORIES, GREY, SECOND, *steps):
        assert contrast(colour, PAGES[theme]) >= LINES, colour


@pytest.mark.parametrize("theme", PAGES)
def test_text_is_read_on_both_pages(theme: str) -> None:
    assert contrast(THEMES[theme]["text"], PAGES[theme]) >= TEXT


@pytest.mark.parametrize("kind", QUICK)
def test_no_line_is_paler_than_its_colour_and_all_text_is_the_themes(run_of: Callable[[str], Run], kind: str) -> None:
    for name in Plots.names():
        figure = getattr(run_of(kind).plot, name)()
        assert figure.layout.font.color == THEMES["light"]["text"]
        looks = figure.layout.template.layout
        assert {axis.gridcolor for axis in (looks.xaxis, looks.yaxis)} == {THEMES["light"]["grid"]}
        for trace in figure.data:
            assert trace.type == "parcoords" or trace.opacity in (None, 1)
            if trace.type == "scatter" and trace.mode == "lines" and isinstance(trace.line.color, str):
                assert all(contrast(trace.line.color, page) >= LINES for page in PAGES.values())


def test_colours_that_stand_beside_each_other_differ_for_people_who_see_no_red_or_green() -> None:
    """By Viénot et al. (1999): a distance in linear RGB after the loss of one cone."""
    shown = {status: COLOURS[status] for status in ("completed", "stopped", "failed", "running")}
    for seen in (deuteranope, protanope):
        points = {status: seen(colour) for status, colour in shown.items()}
        for first, second in combinations(points.items(), 2):
            assert math.dist(first[1], second[1]) > 0.1, (first, second)


def linear(colour: str) -> list[float]:
    return [(int(colour[place : place + 2], 16) / 255) ** 2.2 for place in (1, 3, 5)]


def deuteranope(colour: str) -> tuple[float, ...]:
    red, green, blue = linear(colour)
    return (0.29275 * red + 0.70725 * green,) * 2 + (-0.02234 * red + 0.02234 * green + blue,)


def protanope(colour: str) -> tuple[float, ...]:
    red, green, blue = linear(colour)
    return (0.11238 * red + 0.88762 * green,) * 2 + (0.00401 * red - 0.00401 * green + blue,)
