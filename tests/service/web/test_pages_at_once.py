"""The pages in a real browser, where two things happen at once: answers late, refused or overtaken, and who reads or works."""

from pathlib import Path
from typing import Any

import pytest

from tests.html_report.browsing import needs_browser
from tests.searches import wait_for
from tests.service.submissions import submission
from tests.service.web.serving import PASSWORD, Served, a_run
from tests.service.web.visiting import logged_in, named, opened
from tuner.history.records import RunRecord
from tuner.service.model import State

pytestmark = needs_browser


@pytest.fixture
def study(served: Served, tmp_path: Path) -> int:
    return served.study("anne", State.RUNNING, a_run(tmp_path))


def drawn_again(served: Served, page: Any, study: int) -> None:
    """Something changes, and the page shows it."""
    priority = served.service.study(study).priority % 9 + 1
    named(served, study, priority=priority)
    served.state(study, State.PAUSING if served.service.study(study).state is State.RUNNING else State.PAUSED)
    page.wait_for_selector(f"text=priority {priority}")


LISTEN = "document.getElementById('trials-section').addEventListener('focusout', () => (window.left = (window.left ?? 0) + 1))"
SCROLL = "(document.querySelector('#trials .wide').scrollLeft = 40, document.querySelector('#trials .wide').scrollLeft)"


@pytest.mark.slow
def test_who_types_or_reads_keeps_the_place(served: Served, study: int, browser: Any) -> None:
    page, complaints = logged_in(browser, served, "anne", f"/studies/{study}", width=390)
    page.wait_for_selector("#trials tbody a")
    page.focus("#trial-filter")
    page.keyboard.type("0")
    page.wait_for_timeout(500)  # until the filtered rows are there
    scrolled = page.evaluate(SCROLL)
    page.evaluate(LISTEN)
    drawn_again(served, page, study)
    drawn_again(served, page, study)
    assert page.evaluate("window.left") is None
    page.keyboard.type("0")
    assert page.input_value("#trial-filter") == "00"
    assert page.evaluate("document.querySelector('#trials .wide').scrollLeft") == scrolled > 0
    assert complaints == []
    page.context.close()


ROWS = """async () => {
  const { el, show } = await import("/assets/dom.js");
  const place = document.getElementById("main").appendChild(el("div", {}));
  const row = (name) => el("p", { "data-key": name }, el("input", { value: name }));
  show(place, row("a"), row("b"), row("c"));
  const held = place.querySelector("[data-key=c] input");
  held.focus();
  held.setSelectionRange(1, 1);
  show(place, row("c"), row("a"), el("hr", {}), row("b"));
  const order = [...place.children].map((child) => child.dataset.key ?? child.tagName).join(" ");
  const found = [order, document.activeElement === held, held.selectionStart];
  const moved = new MutationObserver(() => {});
  moved.observe(place, { childList: true });
  show(place, row("a"), el("hr", {}), row("b"));
  return [...found, moved.takeRecords().flatMap((record) => [...record.removedNodes]).map((node) => node.dataset.key)];
}"""
MARKED = """async () => {
  const { el, show } = await import("/assets/dom.js");
  const place = document.getElementById("main").appendChild(el("div", {}));
  const draw = (trial, text) => show(place, el("div", { "data-key": trial }, el("pre", {}, text)));
  draw("1", "an error in line 3");
  getSelection().setBaseAndExtent(place.querySelector("pre").firstChild, 3, place.querySelector("pre").firstChild, 8);
  draw("1", "an error in line 3, and more");
  const kept = getSelection().toString();
  draw("2", "another trial's");
  const other = place.textContent;
  getSelection().removeAllRanges();
  draw("2", "another trial's, and more");
  return [kept, other, place.textContent];
}"""


@pytest.mark.slow
def test_rows_that_stay_are_not_moved_and_what_is_marked_stays_marked(served: Served, browser: Any) -> None:
    page, complaints = logged_in(browser, served, "anne")
    assert page.evaluate(ROWS) == ["c a HR b", True, 1, ["c"]]
    assert page.evaluate(MARKED) == ["error", "another trial's", "another trial's, and more"]
    assert complaints == []
    page.context.close()


def test_a_zoom_outlasts_a_redraw(served: Served, study: int, browser: Any) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}")
    page.wait_for_selector("#curves .trace")
    shown = "document.getElementById('curves')._fullLayout.xaxis.range"
    whole, box = page.evaluate(shown), page.locator("#curves .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + 60, steps=5)
    page.mouse.up()
    wait_for(lambda: page.evaluate(shown)[1] < whole[1] - 0.1)
    zoomed = page.evaluate(shown)
    with page.expect_response("**/studies/*/curves*"):
        drawn_again(served, page, study)
    page.wait_for_timeout(300)
    assert page.evaluate(shown) == zoomed
    page.context.close()


def test_metrics_of_any_epoch_can_be_chosen() -> None:
    events: list[dict[str, Any]] = [
        {"event": "trial_started", "trial": "0", "number": 0, "config": {}, "seed": 0, "time": 0.0},
        *(
            {
                "event": "epoch_reported",
                "trial": "0",
                "epoch": epoch,
                "decision": "continue",
                "metrics": told,
                "time": 1.0,
            }
            for epoch, told in [(1, {"loss": 1.0}), (2, {"loss": 0.5, "f1": 0.9}), (3, {"loss": 0.4, "note": "x"})]
        ),
    ]
    assert RunRecord("loss", "min", events).metric_names() == ["loss", "f1"]


def test_a_part_that_is_refused_leaves_the_others(served: Served, tmp_path: Path, browser: Any) -> None:
    study = served.study("anne", State.RUNNING, a_run(tmp_path))
    served.state(study, State.ENDING, State.FINISHED)
    page, _ = opened(browser)
    page.context.set_extra_http_headers({"Authorization": f"Bearer {served.tokens['anne']}"})
    refusal = '{"detail": "no curves today"}'
    page.route(
        "**/studies/*/curves*", lambda route: route.fulfill(status=404, content_type="application/json", body=refusal)
    )
    page.goto(f"{served.url}/studies/{study}")
    page.wait_for_selector("#told:has-text('no curves today')")
    page.wait_for_selector("#advice li, #advice p.soft")
    assert page.locator("#trials tbody tr").count() > 0
    page.context.close()


@pytest.mark.slow
def test_a_request_that_fails_is_said(served: Served, study: int, browser: Any) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}")
    page.wait_for_selector("#trials tbody a")
    page.route("**/studies/*/table*", lambda route: route.abort())
    page.select_option("#trial-order", "started")
    page.wait_for_selector("#told:has-text('the server doesn\\'t answer')")
    page.context.close()


def test_looking_at_trials_adds_nothing_to_the_browsers_history(served: Served, study: int, browser: Any) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}")
    page.wait_for_selector("#trials tbody a")
    before = page.evaluate("history.length")
    for row in range(3):
        page.locator("#trials tbody a").nth(row).click()
        page.wait_for_selector("dialog[open] h2")
        assert page.evaluate("location.hash").startswith("#trial=")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog:not([open])", state="attached")
    assert page.evaluate("history.length") == before
    page.context.close()


def test_the_panel_shows_the_trial_that_was_asked_for_last(served: Served, study: int, browser: Any) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}")
    page.wait_for_selector("#trials tbody a")
    late: list[Any] = []

    def hold(route: Any) -> None:
        late.append(route)

    page.route("**/trials/00000", hold)
    page.evaluate("location.hash = 'trial=00000'")
    page.evaluate("location.hash = 'trial=00001'")
    page.wait_for_selector("dialog[open] h2:has-text('Trial 00001')")
    late.pop().continue_()
    page.wait_for_timeout(300)
    assert "Trial 00001" in page.inner_text("dialog h2")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.evaluate("location.hash = 'trial=00000'")
    page.wait_for_timeout(200)
    page.evaluate("location.hash = ''")
    late.pop().continue_()
    page.wait_for_timeout(300)
    assert page.locator("dialog[open]").count() == 0
    page.context.close()


@pytest.mark.slow
def test_a_trial_that_could_not_be_read_is_opened_by_the_next_click(served: Served, study: int, browser: Any) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}")
    link = page.locator("#trials tbody a").first
    link.wait_for()
    page.route("**/trials/0*", lambda route: route.abort())
    link.click()
    page.wait_for_selector("#told:has-text('the server doesn\\'t answer')")
    page.unroute("**/trials/0*")
    link.click()
    page.wait_for_selector("dialog[open]")
    page.context.close()


def test_a_link_to_a_trial_outlasts_a_login_and_waits_for_the_trial(served: Served, study: int, browser: Any) -> None:
    page, _ = opened(browser)
    refused = '{"detail": "it has not begun"}'
    page.route(
        "**/trials/00003", lambda route: route.fulfill(status=404, content_type="application/json", body=refused)
    )
    page.goto(f"{served.url}/studies/{study}#trial=00003")
    page.fill("[name=name]", "chief")
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("#told:has-text('it has not begun')")
    assert page.url == f"{served.url}/studies/{study}#trial=00003"
    page.unroute("**/trials/00003")
    drawn_again(served, page, study)
    page.wait_for_selector("dialog[open] h2:has-text('Trial 00003')")
    page.context.close()


@pytest.mark.parametrize(
    "elsewhere", ["https://elsewhere.invalid/", "//elsewhere.invalid/", "\\\\elsewhere.invalid", "http://"]
)
@pytest.mark.slow
def test_a_login_leads_nowhere_else(served: Served, browser: Any, elsewhere: str) -> None:
    page, _ = opened(browser)
    page.goto(f"{served.url}/login")
    page.evaluate("next => history.replaceState(null, '', `/login?next=${encodeURIComponent(next)}`)", elsewhere)
    page.fill("[name=name]", "chief")
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("#age")
    assert page.url == f"{served.url}/"
    page.context.close()


@pytest.mark.slow
def test_the_panel_closes_by_a_click_beside_it_and_not_by_marking_text(
    served: Served, study: int, browser: Any
) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}#trial=00000")
    page.wait_for_selector("dialog[open]")
    box = page.locator("dialog").bounding_box()
    inside, margin, beside = (
        (box["x"] + 60, box["y"] + 80),
        (box["x"] + 4, box["y"] + 80),
        (box["x"] - 30, box["y"] + 80),
    )
    for start, end in [(inside, margin), (inside, beside), (margin, margin)]:
        page.mouse.move(*start)
        page.mouse.down()
        page.mouse.move(*end)
        page.mouse.up()
        assert page.locator("dialog[open]").count() == 1
    page.mouse.click(*beside)
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.context.close()


@pytest.mark.slow
def test_long_values_fit_a_phone(served: Served, tmp_path: Path, browser: Any) -> None:
    run = a_run(tmp_path, start_from=[{"lr": 0.01, "kind": "b", "depth": 1, "momentum": 0.1, "width": 16}])
    study = served.study("anne", State.RUNNING, run)
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}#trial=00000", width=390)
    page.wait_for_selector("dialog[open]")
    page.evaluate(
        "document.querySelector('.facts td').textContent = '/mnt/datasets/pretrained/' + 'convnext_tiny_'.repeat(6)"
    )
    assert page.evaluate("document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth")
    page.context.close()


def test_a_comparison_is_live_and_one_that_cannot_be_made_says_why(
    served: Served, tmp_path: Path, browser: Any
) -> None:
    one, other = (served.study("anne", State.RUNNING, a_run(tmp_path / name)) for name in "ab")
    page, _ = logged_in(browser, served, "anne", f"/compare?study={one}&study={other}")
    page.wait_for_selector("#comparison .trace")
    with page.expect_response("**/comparison*"):
        served.state(one, State.PAUSING)
    most = served.study("anne", State.RUNNING, a_run(tmp_path / "c", mode="max"))
    page.goto(f"{served.url}/compare?study={one}&study={most}")
    page.wait_for_selector("main:has-text('compare needs runs of the same metric')")
    assert f"@{one} minimises loss; @{most} maximises loss" in page.inner_text("main")
    page.context.close()


@pytest.mark.slow
def test_the_panel_of_a_deleted_study_closes(served: Served, study: int, browser: Any) -> None:
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}#trial=00000")
    page.wait_for_selector("dialog[open] h2:has-text('Trial 00000')")
    served.state(study, State.ENDING, State.FINISHED)
    assert served.client("anne").delete(f"/api/v1/studies/{study}").status_code == 204
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.wait_for_selector("main:has-text('a study is named by its number')")
    page.context.close()


@pytest.mark.slow
def test_a_page_is_read_again_while_only_others_have_news(served: Served, browser: Any) -> None:
    waiting = served.study("anne", State.QUEUED)
    page, _ = opened(browser)
    page.context.set_extra_http_headers({"Authorization": f"Bearer {served.tokens['anne']}"})
    page.clock.install()
    page.goto(f"{served.url}/studies/{waiting}")
    page.wait_for_selector("#age.fresh")
    page.clock.run_for(2_000)
    page.wait_for_timeout(700)  # until it has been read for the last time because of its own beginning
    named(served, waiting, priority=7)  # of which no event tells this page
    for _ in range(3):  # the server is never silent for 15 s
        page.clock.run_for(6_000)
        served.service.submit(submission(), served.users["bert"])
        page.wait_for_timeout(700)
    page.clock.run_for(5_000)
    page.wait_for_selector("text=priority 7", timeout=6_000)  # the clock goes on meanwhile
    page.context.close()
