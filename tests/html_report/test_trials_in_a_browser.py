"""A trial in the report: opened from a row, a point and a link, lit up in figures, and told whole in its panel."""

import ast
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.html_report.browsing import Visit, needs_browser, opened
from tests.results.kinds_of_runs import sixty_conditional
from tuner import Run
from tuner.html_report import write_report

pytestmark = needs_browser
LIT = "[...document.querySelectorAll('[data-lit]')].filter(e => e.dataset.lit).map(e => [e.id, e.dataset.lit])"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return sixty_conditional(tmp_path_factory.mktemp("a run"))


@pytest.fixture(scope="module")
def written(run: Run) -> str:
    return write_report(run)


@pytest.fixture(scope="module")
def reader(browser: Any, written: str) -> Iterator[Visit]:
    """Of one page, which is drawn once, as for somebody who reads for a while."""
    found = opened(browser, written)
    yield found
    found.page.context.close()


@pytest.fixture
def visit(reader: Visit) -> Iterator[Visit]:
    """The page without a chosen trial and a filter."""
    yield reader
    assert reader.complaints == []
    reader.page.locator("input[type=search]").fill("")
    reader.page.keyboard.press("Escape")
    reader.page.wait_for_selector("#trial-panel", state="hidden")


def panel(visit: Visit) -> str:
    visit.page.wait_for_selector("#trial-panel:not([hidden])")
    return str(visit.page.locator("#trial-panel").inner_text())


def test_a_row_opens_all_of_its_trial(visit: Visit, run: Run) -> None:
    visit.choose("00007")
    told = panel(visit)
    trial = run.trial("00007")
    assert "Trial 00007" in told
    for text in ("looks odd after epoch 3 #ask-anna", "FileNotFoundError", 'train.py", line 42', "loading images"):
        assert text in told
    assert f"python -m tuner replay {shlex.quote(run.path)} 00007" in told
    assert str(trial.seed) in told
    assert trial.config["optimizer"] in told


def test_training_and_validation_share_a_chart(visit: Visit, run: Run) -> None:
    assert run.best is not None
    visit.choose(run.best.trial)
    names = "[...document.querySelectorAll('#trial-content .js-plotly-plot')].map(e => e.data.map(t => t.name))"
    visit.page.wait_for_function(f"{names}.length > 4")
    assert {"val_loss", "train_loss"} in [set(chart) for chart in visit.page.evaluate(names)]
    curve = visit.page.evaluate(
        "[...document.querySelectorAll('#trial-content .js-plotly-plot')]"
        ".flatMap(e => e.data).find(t => t.name === 'val_accuracy').y"
    )
    recorded = [epoch.metrics["val_accuracy"] for epoch in run.best.epochs.values()]
    assert curve == pytest.approx(recorded, rel=1e-5)


def test_the_trial_of_a_link_is_lit_in_every_figure_that_has_it(browser: Any, written: str, run: Run) -> None:
    assert run.best is not None
    visit = opened(browser, f"{written}#trial={run.best.trial}")
    assert f"Trial {run.best.trial}" in panel(visit)
    visit.drawn()
    visit.page.wait_for_function(f"{LIT}.length >= 9")
    lit = dict(visit.page.evaluate(LIT))
    assert set(lit.values()) == {run.best.trial}
    wanted = {"history-against-trials", "learning-curves", "parallel-coordinates", "slices", "timeline", "explorer"}
    assert {f"plot-{name}" for name in wanted} <= set(lit)
    assert not {"plot-importance", "plot-distribution"} & set(lit)
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_function(f"{LIT}.length === 0")
    assert visit.page.evaluate("location.hash") == ""
    assert visit.complaints == []
    visit.page.context.close()


def test_a_point_opens_its_trial(visit: Visit) -> None:
    figure = visit.page.locator("#plot-history-against-trials")
    figure.scroll_into_view_if_needed()
    visit.page.wait_for_selector("#plot-history-against-trials .main-svg")
    visit.page.evaluate(
        "document.getElementById('plot-history-against-trials').emit('plotly_click', "
        "{points: [{data: document.getElementById('plot-history-against-trials').data[0], pointNumber: 1}]})"
    )
    place = "document.getElementById('plot-history-against-trials').data[0]"
    wanted = visit.page.evaluate(f"{place}.customdata?.[1]?.[0] ?? {place}.text[1]")
    assert f"Trial {wanted}" in panel(visit)
    assert visit.page.evaluate("location.hash") == f"#trial={wanted}"


def test_arrows_go_through_the_table_and_from_trial_to_trial(visit: Visit) -> None:
    first, second, third = visit.column(0)[:3]
    visit.page.locator(f"tr[data-trial='{first}'] a").focus()
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("Enter")
    assert f"Trial {second}" in panel(visit)
    visit.page.wait_for_function("document.activeElement.id === 'trial-title'")
    visit.page.keyboard.press("ArrowRight")
    visit.page.wait_for_function(f"document.querySelector('#trial-title').textContent === 'Trial {third}'")
    visit.page.keyboard.press("Escape")
    assert not visit.page.locator("#trial-panel").is_visible()
    assert visit.page.evaluate("document.activeElement.closest('tr').dataset.trial") == second


def test_the_explorer_draws_what_is_chosen_of_the_trials_that_pass_the_filter(visit: Visit, run: Run) -> None:
    visit.page.locator("#plot-explorer").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#plot-explorer .main-svg")
    buttons = "document.getElementById('plot-explorer')._fullLayout.modebar.bgcolor"
    assert visit.page.evaluate(buttons) == "rgba(0,0,0,0)"  # no box behind them
    visit.page.locator("#explore-y").select_option("train_loss")
    visit.page.locator("#explore-x").select_option("config/lr")
    visit.page.locator("#explore-log-x").check()
    visit.page.locator("input[type=search]").fill("completed")
    done = [trial for trial in run.record.trials.values() if trial.status == "completed"]
    explorer = "document.getElementById('plot-explorer')"
    visit.page.wait_for_function(f"{explorer}.data.length === 1")
    drawn = visit.page.evaluate(f"[{explorer}.data[0].customdata, {explorer}.data[0].x, {explorer}.layout.xaxis.type]")
    lrs = {trial.trial: trial.config["lr"] for trial in done}
    assert dict(zip(drawn[0], drawn[1], strict=True)) == pytest.approx(lrs)
    assert drawn[2] == "log"


def test_one_click_on_the_metric_sorts_the_best_first(visit: Visit, run: Run) -> None:
    assert run.best is not None
    visit.page.locator("#all-trials th button").nth(2).click()
    visit.page.locator("#all-trials th button").nth(3).click()
    assert visit.column(0)[0] == run.best.trial
    values = [float(value) for value in visit.column(3) if value]
    assert values == sorted(values, reverse=True)


def test_the_winner_is_copied_as_python_json_and_a_command(visit: Visit, run: Run) -> None:

    assert run.best is not None
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    texts = {}
    for label in ("Python", "JSON", "command"):
        visit.page.get_by_role("button", name=f"Copy as {label}").click()
        visit.page.wait_for_selector(f"#said:text('{label}: copied')", state="attached")
        texts[label] = visit.page.evaluate("navigator.clipboard.readText()")
    assert ast.literal_eval(texts["Python"]) == run.best.config
    assert json.loads(texts["JSON"]) == run.best.config
    words = shlex.split(texts["command"])
    assert words[:5] == ["python", "-m", "tuner", "try", run.path]
    assert "augmentation=None" in words


def test_a_line_of_parallel_coordinates_opens_its_trial(visit: Visit, run: Run) -> None:
    """By the mouse, as plotly tells nothing of such clicks: the line's place between two axes is looked for."""
    figure = visit.page.locator("#plot-parallel-coordinates")
    figure.scroll_into_view_if_needed()
    visit.page.wait_for_selector("#plot-parallel-coordinates .parcoords")
    visit.page.evaluate(
        "place => place.on('plotly_hover', event => { window.pointedAt = place.data[0].customdata[event.curveNumber][0]; })",
        figure.element_handle(),
    )
    box = figure.locator("canvas").last.bounding_box()
    assert box is not None
    for step in range(20, 200):
        visit.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * step / 200)
        if visit.page.evaluate("window.pointedAt"):
            break
    pointed = visit.page.evaluate("window.pointedAt")
    assert pointed in run.record.trials
    visit.page.mouse.down()
    visit.page.mouse.up()
    assert f"Trial {pointed}" in panel(visit)
