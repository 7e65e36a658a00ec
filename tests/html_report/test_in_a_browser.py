"""The report as a reader meets it in a browser: figures, tables, print, without scripts."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.html_report.browsing import Visit, needs_browser, opened
from tests.html_report.test_report import dressed
from tests.results.simulated import simulated
from tuner import Run
from tuner.html_report import write_report

DRAWN = "[...document.querySelectorAll('.js-plotly-plot')].map(e => `${e.id} ${e._fullLayout.width}`)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return dressed(simulated(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def written(run: Run) -> str:
    return write_report(run)


@pytest.fixture
def visit(browser: Any, written: str) -> Iterator[Visit]:
    found = opened(browser, written)
    yield found
    found.page.context.close()


@needs_browser
def test_every_figure_draws_without_complaint_or_request_fits_and_is_printed(browser: Any, written: str) -> None:
    visit = opened(browser, written, scheme="dark")
    page = visit.page
    wanted = set(page.evaluate("[...document.querySelectorAll('script[data-plot]')].map(e => e.dataset.plot)"))
    assert len(wanted) == 14  # no memory is reported, so there is no figure of it
    page.locator("details.more > summary").click()
    assert visit.drawn() == wanted | {"plot-explorer"}
    empty = "[...document.querySelectorAll('.js-plotly-plot')].filter(e => !e.querySelector('svg, canvas')).length"
    assert page.evaluate(empty) == 0
    assert_fits(visit, 1400, dark=True)
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("input:visible").count() == 0
    assert page.pdf().startswith(b"%PDF")
    assert visit.complaints == []
    assert len(visit.requests) == 1
    page.context.close()


def assert_fits(visit: Visit, width: int, *, dark: bool) -> None:
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 24, 30)") is dark


@needs_browser
@pytest.mark.slow  # `make test` has one width, and a phone in test_kinds_in_a_browser.py
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "light")])
def test_the_page_fits_its_screen(browser: Any, written: str, width: int, scheme: Any) -> None:
    visit = opened(browser, written, width=width, scheme=scheme)
    assert visit.drawn()
    assert_fits(visit, width, dark=scheme == "dark")
    visit.page.context.close()


@pytest.mark.slow
@needs_browser
def test_what_was_never_in_view_is_on_paper(visit: Visit) -> None:
    """A printer waits for nothing that is drawn later: `page.pdf()` is what printing is."""
    page = visit.page
    page.wait_for_selector("html[data-printable]")
    shown = "figure:visible [data-figure]"
    wanted = {figure.get_attribute("id") for figure in page.locator(shown).all()}
    assert len(wanted) > page.locator(".js-plotly-plot").count()
    page.evaluate("window.addEventListener('afterprint', () => { window.onPaper = window.whilePrinting; })")
    page.evaluate(f"window.addEventListener('beforeprint', () => {{ window.whilePrinting = {DRAWN}; }})")
    assert page.pdf().startswith(b"%PDF")
    assert {f"{name} 700" for name in wanted} <= set(page.evaluate("window.whilePrinting"))
    page.wait_for_function(f"{DRAWN}.every(one => !one.endsWith(' 700'))")
    assert visit.complaints == []


@needs_browser
def test_figures_that_could_not_be_drawn_are_printed_as_numbers(browser: Any, written: str) -> None:
    page = browser.new_page()
    page.add_init_script("window.requestIdleCallback = () => {}")  # as where a printer is faster than the page
    page.goto(f"file://{written}")
    done = "figure.as-numbers, figure:has(.js-plotly-plot)"
    left = f"[...document.querySelectorAll('[data-plot]')].filter(one => !one.closest('{done}')).length"
    assert page.evaluate(f"(dispatchEvent(new Event('beforeprint')), {left})") == 0
    page.emulate_media(media="print")
    assert page.locator("figure.as-numbers:visible details.numbers[open] table:visible").count() > 5
    assert page.locator("figure.as-numbers .plot:visible").count() == 0
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.numbers[open]").count() == 0
    page.context.close()


@needs_browser
def test_on_paper_no_table_is_wider_than_the_page_and_no_button_is_seen(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 718, "height": 900})
    visit.page.locator("#plot-history-against-trials").scroll_into_view_if_needed()
    visit.page.wait_for_selector(".modebar", state="attached")
    visit.page.emulate_media(media="print")
    narrow = "document.documentElement.scrollWidth === 718"
    visit.page.wait_for_function(narrow)  # figures that are drawn by now follow a little later
    assert visit.page.locator(".modebar").count() > 0
    assert visit.page.locator(".modebar:visible").count() == 0


@needs_browser
def test_the_table_of_trials_sorts_by_keyboard_and_filters(visit: Visit, run: Run) -> None:
    table = visit.page.locator("#all-trials")
    values = [float(value) for value in visit.column(3) if value]
    assert run.best is not None
    assert visit.column(0)[0] == run.best.trial
    visit.page.locator("#all-trials th button").nth(3).focus()
    visit.page.keyboard.press("Enter")
    assert [float(value) for value in visit.column(3) if value] == sorted(values)
    assert table.locator("th").nth(3).get_attribute("aria-sort") == "ascending"
    visit.page.keyboard.press("Enter")
    assert [float(value) for value in visit.column(3) if value] == sorted(values, reverse=True)
    assert table.locator("th[aria-sort]").count() == 1
    assert_numbers_sort_as_numbers_and_what_is_missing_comes_last(visit)
    assert_all_words_typed_are_looked_for(visit, run)


def assert_numbers_sort_as_numbers_and_what_is_missing_comes_last(visit: Visit) -> None:
    names = visit.page.locator("#all-trials th").all_inner_texts()
    momentum = next(index for index, name in enumerate(names) if name.startswith("momentum"))
    button = visit.page.locator("#all-trials th button").nth(momentum)
    for descending in (False, True):
        button.click()
        cells = visit.column(momentum)
        known = [float(cell) for cell in cells if cell]
        assert known == sorted(known, reverse=descending)
        assert "" in cells
        assert cells[: len(known)] == [cell for cell in cells if cell]


def assert_all_words_typed_are_looked_for(visit: Visit, run: Run) -> None:
    visit.page.locator("input[type=search]").focus()
    visit.page.keyboard.type("FAILED b")
    found = visit.column(0)
    failed = [t.trial for t in run.record.trials.values() if t.status == "failed"]
    assert found
    assert set(found) <= set(failed)
    assert visit.page.locator("#count-all-trials").inner_text() == f"{len(found)} of {len(run.record.trials)}"
    visit.page.locator("input[type=search]").fill("")
    assert len(visit.column(0)) == len(run.record.trials)
