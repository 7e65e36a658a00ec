"""The pages in a real browser: several tabs, devices, studies that workers run, keys alone."""

from pathlib import Path
from typing import Any

import pytest

from tests.html_report.browsing import PATIENCE_MS, needs_browser
from tests.searches import wait_for
from tests.service.web.serving import Served, a_run
from tests.service.web.visiting import logged_in, named
from tuner.service.model import State


@pytest.mark.slow
@needs_browser
def test_in_a_browser_eight_tabs_share_one_stream_and_all_are_live(served: Served, browser: Any) -> None:
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {served.tokens['guest']}"})
    context.set_default_timeout(PATIENCE_MS)
    pages = [context.new_page() for _ in range(8)]
    for page in pages:
        page.goto(served.url)
        page.wait_for_selector("#age.fresh")
    open_streams = served.access.streams.open
    guest = served.users["guest"].id
    wait_for(lambda: open_streams == {guest: 1})
    first = served.study("anne", State.QUEUED)
    for page in pages:
        page.wait_for_selector(f"tr[data-key='{first}']")
    assert open_streams == {guest: 1}
    pages[0].close()  # which had the stream: another one takes it over
    wait_for(lambda: open_streams == {guest: 1})
    served.service.cancel(first, served.users["anne"])
    for page in pages[1:]:
        page.wait_for_selector(f"tr[data-key='{first}'] .state.cancelled")
    context.close()
    wait_for(lambda: open_streams == {})


LANES = """async () => {
  const { lanes } = await import("/assets/lanes.js");
  const use = (kind, index, study, busy, trial = null) => ({ device: { kind, index, name: "" }, study, user: study && "anne", trial, busy });
  const rows = [{ id: 1, name: "busy", running: ["00003"] }, { id: 2, name: "asleep", running: [] }];
  const uses = [use("gpu", 0, 1, 0.9, "00007"), use("gpu", 1, 2, 0.01), use("gpu", 2, null, 0.0), use("gpu", 3, null, 0.8)];
  const drawn = lanes({ devices: [...uses, use("cpu", 0, 1, null), use("cpu", 1, 1, null)], alive: rows });
  document.querySelector("main").append(drawn);
  return [...drawn.querySelectorAll("li")].map((lane) => [lane.className, lane.innerText.replaceAll("\\n", " "), getComputedStyle(lane).borderTopColor]);
}"""


@needs_browser
def test_in_a_browser_a_device_that_is_held_and_does_nothing_is_red(served: Served, browser: Any) -> None:
    page, _ = logged_in(browser, served, "guest")
    busy, asleep, free, foreign, cpus = page.evaluate(LANES)
    assert busy[:2] == ["held", "GPU 0 @1 busy anne trial 00007 90 % busy"]
    assert asleep[:2] == ["idle", "GPU 1 @2 asleep anne no trial runs 1 % busy: allocated but idle"]
    assert (asleep[2], busy[2] == asleep[2]) == ("rgb(179, 38, 30)", False)
    assert free[:2] == ["free", "GPU 2 free 0 % busy"]
    assert foreign[:2] == ["free", "GPU 3 free 80 % busy with other programs"]
    assert cpus[:2] == ["held", "CPU 0\u20131 @1 busy anne trial 00003"]  # their use is not known
    page.context.close()


@needs_browser
def test_in_a_browser_a_study_that_workers_run_is_marked(served: Served, tmp_path: Path, browser: Any) -> None:
    run = a_run(tmp_path)
    study = named(served, served.study("anne", State.RUNNING, run), external=True)
    page, complaints = logged_in(browser, served, "guest")
    assert page.text_content(f"tr[data-key='{study}'] .external") == "external"
    page.goto(f"{served.url}/studies/{study}#trial={next(iter(run.record.trials))}")
    page.wait_for_selector("dialog[open]:has-text('It runs elsewhere: its worker has what it printed.')")
    assert "Workers ask for its trials" in page.text_content("main")
    assert complaints == []
    page.context.close()


@needs_browser
@pytest.mark.slow
def test_in_a_browser_everything_is_reached_by_keys_and_nothing_moves(
    served: Served, tmp_path: Path, browser: Any
) -> None:
    mine = served.study("bert", State.QUEUED)
    study = served.study("anne", State.RUNNING, a_run(tmp_path))
    page, complaints = logged_in(browser, served, "bert", reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    focused = "document.activeElement.id || document.activeElement.name || document.activeElement.textContent"
    assert page.evaluate(focused) == "main"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.value") == str(mine):
            break
    page.keyboard.press("Space")
    page.wait_for_selector("#chosen:has-text('1 chosen:')")
    assert page.is_checked(f"[name=chosen][value='{mine}']")
    page.focus("[data-verb=pause]")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"tr[data-key='{mine}'] .state.paused")
    page.wait_for_selector("[data-verb=pause][aria-disabled=true]")
    assert page.evaluate("document.activeElement.dataset.verb") == "pause"  # which is off now, and keeps its place
    page.keyboard.press("Enter")
    page.wait_for_selector("#told:has-text('None of these can do that: they are paused.')")
    page.keyboard.press("Tab")
    page.wait_for_selector("[data-verb=pause]:disabled")
    moving = "[...document.querySelectorAll('*')].filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0)"
    assert page.evaluate(f"{moving}.length") == 0
    page.goto(f"{served.url}/studies/{study}")
    page.wait_for_selector("#trials tbody a")
    page.focus("#trials tbody a")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.activeElement.textContent") == "Close"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert page.evaluate("document.activeElement.closest('#trials') !== null")  # back where it was opened
    assert complaints == []
    page.context.close()


NAMES = """async () => {
  const { curvesOf } = await import("/assets/curves.js");
  const { names, section } = curvesOf(1, () => {});
  const choice = section.querySelector("select");
  names(["loss", "gain", "memory"]);
  const first = choice.value;
  choice.value = "gain";
  names(["loss", "memory", "gain"]);
  return [first, choice.value, choice.options.length];
}"""


@needs_browser
def test_in_a_browser_curves_begin_with_the_studys_metric_and_stay_with_the_users(served: Served, browser: Any) -> None:
    page, _ = logged_in(browser, served, "guest")
    assert page.evaluate(NAMES) == ["loss", "gain", 3]
    page.context.close()


@needs_browser
def test_in_a_browser_who_was_away_is_told_what_happened_since(served: Served, tmp_path: Path, browser: Any) -> None:
    cancelled = served.study("bert", State.QUEUED)
    served.service.cancel(cancelled, served.users["bert"])
    begun = served.study("anne", State.RUNNING, a_run(tmp_path))
    served.study("anne", State.QUEUED)
    page, complaints = logged_in(browser, served, "guest")
    assert page.locator("#since").count() == 0  # the first look

    def look_again(seconds: int) -> None:
        away = "Date.now() / 1000 - " + str(seconds)
        told = f"{{time: {away}, user: 'guest', best: {{}}}}"
        page.evaluate(
            f"() => {{ const told = {told}; onpagehide = () => localStorage.setItem('tuner-last-look', JSON.stringify(told)); }}"
        )
        page.reload()
        page.wait_for_selector(f"tr[data-key='{begun}']")

    look_again(60)
    assert page.locator("#since").count() == 0  # a minute is no absence
    look_again(3600)
    page.wait_for_selector("#since:has-text('Since you last looked, 1 h 00 min ago')")
    lines = page.locator("#since li").all_text_contents()
    assert sorted(lines) == [
        f"@{cancelled} parabola.py was cancelled: cancelled by bert",
        f"@{begun} parabola.py has begun",
    ]
    page.click("[data-close=since]")
    page.wait_for_selector("#since", state="detached")
    assert complaints == []
    page.context.close()


@needs_browser
def test_in_a_browser_a_trial_on_a_phone_names_what_its_epochs_reported(
    served: Served, tmp_path: Path, browser: Any
) -> None:
    study = served.study("anne", State.RUNNING, a_run(tmp_path, reports=6))
    page, _ = logged_in(browser, served, "guest", f"/studies/{study}#trial=00000", width=390)
    page.wait_for_selector("dialog[open] td[data-name=loss]")
    named = "cell => getComputedStyle(cell, '::before').content"
    assert page.locator("dialog td[data-name=loss]").first.evaluate(named) == '"loss "'
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.context.close()
