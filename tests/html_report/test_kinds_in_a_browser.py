"""Reports of all kinds of runs: nothing overflows or is empty, axe finds nothing, and it works without scripts."""

from pathlib import Path
from typing import Any

import pytest

from tests.html_report.browsing import needs_browser, opened
from tests.results.kinds_of_runs import KINDS, QUICK, brief, searched, thousand_of_fifty
from tuner import Budget, Random, loguniform, uniform
from tuner.html_report import write_report
from tuner.plots.figure import COLOURS

pytestmark = needs_browser
# colours move nothing: what doesn't fit in one scheme doesn't in the other
SCREENS = [(390, "light"), (820, "light"), (1400, "light"), (2560, "light"), (820, "dark")]
EMPTY = "[...document.querySelectorAll('.js-plotly-plot')].filter(e => !e.querySelector('svg, canvas')).length"

CUT_OFF = """[...document.querySelectorAll('.js-plotly-plot')].flatMap(place => {
    const edge = place.querySelector('.main-svg').getBoundingClientRect();
    return [...place.querySelectorAll('.main-svg text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.width && (box.left < edge.left - 2 || box.right > edge.right + 2);
    }).map(text => `${place.id}: ${text.textContent}`);
})"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: write_report(KINDS[name](tmp_path_factory.mktemp(name))) for name in QUICK}


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("kind", QUICK)
def test_every_kind_fits_every_screen(
    browser: Any, reports: dict[str, str], kind: str, width: int, scheme: str
) -> None:
    visit = opened(browser, reports[kind], width=width, scheme=scheme)
    visit.drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    assert visit.page.evaluate(EMPTY) == 0
    assert visit.page.evaluate(CUT_OFF) == []
    assert visit.complaints == []
    visit.page.context.close()


@pytest.mark.slow
def test_long_names_fit_a_phone(browser: Any, reports: dict[str, str]) -> None:
    visit = opened(browser, reports["long_unicode"], width=390)
    importance = visit.page.locator("#plot-importance")
    importance.scroll_into_view_if_needed()
    importance.locator(".main-svg .g-xtitle text").wait_for()
    assert visit.page.evaluate(CUT_OFF) == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
    visit.choose("00003")
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
    content = visit.page.locator("#trial-content")
    assert content.evaluate("e => e.scrollWidth <= e.clientWidth")
    visit.page.context.close()


def test_no_tile_is_narrower_than_its_figure_on_a_phone(browser: Any, reports: dict[str, str]) -> None:
    """`17 min 45 s` stood over the edge."""
    visit = opened(browser, reports["sixty_conditional"], width=390)
    over = "es => es.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
    assert visit.page.locator(".tiles dd").evaluate_all(over) == []
    visit.page.context.close()


@pytest.mark.parametrize("kind", [pytest.param("sixty_conditional", marks=pytest.mark.slow), "all_failed"])
def test_axe_finds_nothing(browser: Any, reports: dict[str, str], kind: str) -> None:
    base = pytest.importorskip("axe_playwright_python.base")
    visit = opened(browser, reports[kind])
    visit.drawn()
    visit.page.evaluate(Path(base.AXE_FILE_PATH).read_text())
    visit.choose("00004")
    assert names(visit.page) == []
    visit.page.context.close()


def names(page: Any) -> list[str]:
    found = page.evaluate("axe.run()")
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]


def test_a_loss_over_decades_is_looked_at_on_a_logarithmic_axis(browser: Any, reports: dict[str, str]) -> None:
    visit = opened(browser, reports["seven_decades"], scheme="dark")
    visit.drawn()
    axis = "document.getElementById('plot-explorer')._fullLayout.yaxis.type"
    visit.page.locator("#explore-y").select_option("loss")
    visit.page.wait_for_function("document.getElementById('plot-explorer')._fullLayout.yaxis.title.text === 'loss'")
    assert visit.page.evaluate(axis) == "log"
    visit.page.locator("#explore-log-y").click()
    visit.page.wait_for_function(f"{axis} === 'linear'")
    pressed = visit.page.locator(".updatemenu-item-rect[style*='244, 250, 255']").first
    assert pressed.evaluate("e => getComputedStyle(e).fill") == "rgb(29, 35, 43)"  # its letters are light
    visit.page.context.close()


def test_a_search_that_saved_no_epoch_has_no_figure_of_that(reports: dict[str, str]) -> None:
    assert 'id="plot-savings"' not in Path(reports["seven_decades"]).read_text()
    assert 'id="plot-savings"' in Path(reports["sixty_conditional"]).read_text()


@pytest.mark.slow
def test_no_word_of_the_table_is_broken(browser: Any, reports: dict[str, str]) -> None:
    visit = opened(browser, reports["sixty_conditional"], width=820)
    lines = (
        "e => { const all = document.createRange(); all.selectNodeContents(e); return all.getClientRects().length; }"
    )
    status = visit.page.locator("tr[data-trial] td:nth-child(2)").first
    assert status.inner_text() == "completed"
    assert status.evaluate(lines) == 1
    visit.page.context.close()


def test_without_scripts_tables_take_the_place_of_figures(browser: Any, reports: dict[str, str]) -> None:
    visit = opened(browser, reports["sixty_conditional"], scripts=False)
    assert visit.page.locator(".plot:visible").count() == 0
    assert visit.page.locator("button:visible").count() == 0
    assert visit.page.locator("#numbers-history-against-trials").is_visible()
    assert visit.page.locator("svg.spark").is_visible()
    assert "numbers of most figures are shown here as tables" in visit.page.locator("main > .not-drawn").inner_text()
    visit.page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_without_scripts_the_learning_curves_are_drawn(
    browser: Any, reports: dict[str, str], width: int, scheme: str
) -> None:
    visit = opened(browser, reports["sixty_conditional"], width=width, scheme=scheme, scripts=False)
    curves = visit.page.get_by_role("img", name="43 of 60 trials were stopped early; the best is bold")
    assert curves.locator("desc").text_content() == "val_accuracy, after epoch 1 to 27; from 0.215 to 0.946"
    lines = curves.locator("path:not(.rung)").evaluate_all(
        "es => es.map(e => [e.getAttribute('stroke'), getComputedStyle(e).fill])"
    )
    assert len(lines) == 54  # six trials failed before they had a value
    assert {stroke for stroke, _ in lines} == {COLOURS[status] for status in ("completed", "stopped", "failed")}
    assert {fill for _, fill in lines} == {"none"}
    box = curves.bounding_box()
    assert box is not None
    assert box["height"] > 250
    assert box["width"] > width / 2
    names = visit.page.locator("figure:has(svg.still) .key").all_inner_texts()
    assert sorted(map(str.strip, names)) == ["completed", "failed", "stopped"]
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    visit.page.context.close()


def test_where_scripts_run_no_still_picture_is_shown(browser: Any, reports: dict[str, str]) -> None:
    visit = opened(browser, reports["sixty_conditional"])
    assert visit.page.locator("svg.still").count() == 1
    assert not visit.page.locator("svg.still").is_visible()
    visit.page.context.close()


def test_the_still_picture_of_sixty_trials_is_small(reports: dict[str, str]) -> None:
    page = Path(reports["sixty_conditional"]).read_text()
    picture = page.partition('<svg class="still"')[2].partition("</svg>")[0]
    assert 1000 < len(picture) < 30_000


@pytest.mark.slow
def test_a_browser_that_can_not_unpack_shows_tables(browser: Any, reports: dict[str, str]) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(f"file://{reports['two_trials']}")
    assert page.locator(".plot:visible").count() == 0
    assert page.locator("details.numbers table").first.is_visible()
    assert page.locator("svg.still").is_visible()
    context.close()


def test_a_run_without_a_winner_begins_with_its_failures(browser: Any, reports: dict[str, str]) -> None:
    visit = opened(browser, reports["all_failed"])
    headings = visit.page.locator("h2:visible").all_inner_texts()
    assert headings[:2] == ["What failed", "What to do next"]
    assert visit.drawn() == {"plot-timeline"}
    visit.page.context.close()


def test_sixty_trials_take_at_most_2_2_megabytes(reports: dict[str, str]) -> None:
    assert Path(reports["sixty_conditional"]).stat().st_size <= 2_200_000


def test_scripts_run_by_their_hashes_alone(browser: Any, reports: dict[str, str], tmp_path: Path) -> None:
    page = Path(reports["two_trials"]).read_text()
    policy = page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    injected = tmp_path / "injected.html"
    injected.write_text(page.replace("<main>", "<main><script>window.injected = true</script>"))
    visit = opened(browser, str(injected))
    assert visit.page.evaluate("window.injected") is None
    visit.page.context.close()


def test_what_is_out_of_sight_waits_for_the_reader(browser: Any, tmp_path: Path) -> None:
    """1,000 rows and the closed numbers of ten figures were laid out before the first screen was shown."""
    space = {"lr": loguniform(1e-4, 1e-1), "dropout": uniform(0, 0.5)}
    budget = Budget(trials=130, max_epochs=1)
    visit = opened(browser, write_report(searched(tmp_path, brief, space=space, search=Random(), budget=budget)))
    shown = "[...document.querySelectorAll('tr[data-trial]')].filter(row => row.checkVisibility()).length"
    assert visit.page.evaluate(shown) == 100
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate(shown) == 130
    visit.page.context.close()


@pytest.mark.slow
def test_of_a_thousand_trials_no_figure_is_drawn_before_it_comes_into_view(browser: Any, tmp_path: Path) -> None:
    visit = opened(browser, write_report(thousand_of_fifty(tmp_path)))
    visit.page.wait_for_function("window.Plotly")
    assert visit.page.locator("tr[data-trial]").count() == 1000
    assert visit.page.locator(".js-plotly-plot").count() <= 1  # the first may be within a screen of the reader
    assert len(visit.drawn()) == 10  # none of stopping: no trial was stopped early
    visit.page.context.close()
