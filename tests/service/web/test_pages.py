"""The pages for browsers: by requests, and in a real one."""

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from tests.html_report.browsing import HARMLESS, needs_browser
from tests.results.simulated import loss
from tests.searches import wait_for
from tests.service.submissions import STUDY, furnace, submission
from tests.service.web.serving import PASSWORD, Served, a_run, serving
from tests.service.web.visiting import logged_in, named, opened
from tuner.api.run import compare
from tuner.plots import figure
from tuner.results.wording import short, with_error
from tuner.service.bundles import of_json
from tuner.service.database import studies
from tuner.service.model import Device, State, Submission
from tuner.service.web import overview
from tuner.service.web.routes.pages import ASSETS
from tuner.service.web.settings import WebSettings

NAME = "<script>document.title='taken'</script>"
HOSTILE = """<title>?</title><script>
fetch("/api/v1/users/me").then(() => document.title = "read", () => document.title = "kept out");
try { document.cookie; document.title = "cookies" } catch {}
</script>"""


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/", "/login"),
        ("/studies/1", "/login?next=%2Fstudies%2F1"),
        ("/account", "/login?next=%2Faccount"),
        ("/compare?study=1&study=2", "/login?next=%2Fcompare%3Fstudy%3D1%26study%3D2"),
    ],
)
def test_pages_are_for_those_who_have_logged_in(served: Served, path: str, where: str) -> None:
    answer = served.client().get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, where)
    page = served.client("guest").get(path)
    assert page.status_code == 200
    assert "unsafe" not in page.headers["content-security-policy"]


def test_the_overview_has_what_waits_why_and_who_has_what(served: Served, tmp_path: Path) -> None:
    progress = {"metric": "loss", "mode": "min", "best": 0.25, "best_trial": "00001", "trials": {"completed": 3}}
    progress |= {"epochs": 9, "updated": time.time(), "wanted": 12}
    running = served.study("anne", State.RUNNING, a_run(tmp_path, reports=2))
    named(served, running, progress=progress, devices=(Device("cpu", 0),))
    waiting = served.study("bert", State.QUEUED)
    found = served.client("bert").get("/api/v1/overview").json()
    first, second = found["alive"]
    assert (first["id"], first["progress"]["best"], first["steerable"], first["has_run"]) == (
        running,
        0.25,
        False,
        True,
    )
    assert (second["id"], second["state"], second["steerable"]) == (waiting, "queued", True)
    assert (found["user"], found["role"], found["over"]) == ("bert", "submitter", [])
    assert served.client("chief").get("/api/v1/overview").json()["alive"][0]["steerable"]


def test_a_long_queue_hides_nothing_that_runs_and_has_the_next_ones(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MOST_ALIVE", 2)
    theirs = served.study("bert", State.RUNNING, a_run(tmp_path))
    mine = served.study("anne", State.RUNNING, a_run(tmp_path / "2"))
    for study in (theirs, mine):
        named(served, study, devices=(Device("cpu", study - theirs),))
    first, second = served.study("bert", State.QUEUED), served.study("anne", State.QUEUED)
    for _ in range(3):
        served.study("bert", State.QUEUED)
    found = served.client("anne").get("/api/v1/overview").json()
    assert [row["id"] for row in found["alive"]] == [mine, theirs, first, second]
    assert found["queued"] == {"anne": 1, "bert": 4}
    for _ in range(3):
        served.study("bert")  # which are checked next
    found = served.client("anne").get("/api/v1/overview").json()
    assert [row["state"] for row in found["alive"]] == ["running"] * 2 + ["queued"] * 2 + ["checking"] * 2


def test_everybody_sees_the_next_studies_of_everybody_and_all_of_their_own(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MOST_ALIVE", 8)
    berts = [named(served, served.study("bert", State.QUEUED), priority=1) for _ in range(9)]
    annes = [served.study("anne", State.QUEUED) for _ in range(5)]

    def shown(user: str) -> set[int]:
        return {row["id"] for row in served.client(user).get("/api/v1/overview").json()["alive"]}

    assert shown("anne") == {*berts[:3], *annes}
    assert shown("guest") == {*berts[:5], *annes[:3]}


def test_studies_are_found_by_words_of_their_name_their_user_and_their_number(served: Served) -> None:
    names = ("flowers wide", "Äpfel", "flowers_50%", "trash")
    ids = [named(served, served.study(user), name=name) for user, name in zip(("anne", "bert") * 2, names, strict=True)]
    for study, user in zip(ids, ("anne", "bert") * 2, strict=True):
        served.service.cancel(study, served.users[user])

    def found(text: str) -> list[int]:
        client = served.client("guest")
        rows = client.get("/api/v1/overview", params={"text": text}).json()["over"]
        listed = client.get("/api/v1/studies", params={"text": text}).json()["items"]
        assert [row["id"] for row in rows] == [study["id"] for study in listed]
        return sorted(row["id"] for row in rows)

    assert found("flowers") == [ids[0], ids[2]]
    assert found("ANNE WIDE") == [ids[0]]
    assert found("äpf") == [ids[1]]
    assert found("%") == [ids[2]]
    assert found("@1") == [ids[0]]
    assert found("bert flowers") == []
    assert found("") == ids


@needs_browser
def test_in_a_browser_a_users_queue_is_one_row_and_what_is_over_is_searched(served: Served, browser: Any) -> None:
    waiting = [served.study("bert", State.QUEUED) for _ in range(9)]
    over = [named(served, served.study("bert", State.QUEUED), name=name) for name in ("flowers", "trash")]
    for study in over:
        served.service.cancel(study, served.users["bert"])
    page, complaints = logged_in(browser, served, "anne")
    rows = page.locator("[aria-label=studies] tbody tr")
    wait_for(lambda: rows.count() == 4)
    assert rows.nth(3).text_content() == "6 more of bert in the queue"
    page.click("[data-open=bert]")
    wait_for(lambda: rows.count() == 10)
    assert page.get_attribute("[data-open=bert]", "aria-expanded") == "true"
    assert [row.get_attribute("data-key") for row in rows.all() if "more" not in (row.text_content() or "")] == [
        str(study) for study in waiting
    ]
    page.fill("#search", "trash")
    names = page.locator("[aria-label='studies that are over'] .name")
    wait_for(lambda: names.all_text_contents() == ["trash"])
    page.focus("#search")
    page.keyboard.press("Tab")  # the table, which may scroll
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == str(over[1])  # a row is one stop
    page.keyboard.press("Space")
    page.wait_for_selector("text=1 chosen")
    page.fill("#search", "no such study")
    page.wait_for_selector("text=No study that is over fits the search.")
    assert page.evaluate("document.activeElement.id") == "search"
    served.service.delete(over[1], served.users["bert"])  # though somebody has chosen it
    wait_for(lambda: page.text_content("#chosen") == "Choose studies to")
    page.fill("#search", "")
    page.focus(f"[name=chosen][value='{over[0]}']")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/studies/{over[0]}")
    assert [text for text in complaints if "404" not in text] == []  # the page asked for what is deleted
    page.context.close()


def test_a_study_in_brief_has_what_its_page_shows(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    study = f"/api/v1/studies/{served.study('anne', State.RUNNING, run)}"
    guest = served.client("guest")
    best, worth = run.best, run.record.worth_of(run.best.trial if run.best else "")
    assert best
    assert worth
    found = guest.get(f"{study}/summary").json()
    assert {key: found["best"][key] for key in ("trial", "value", "epoch", "told", "averaged")} == {
        "trial": best.trial,
        "value": worth.value,
        "epoch": worth.epoch,
        "told": with_error(worth),
        "averaged": f"over epochs {worth.first} to {worth.last}",
    }
    assert sum(found["trials"].values()) == len(run.record.trials)
    assert (found["metrics"][0], found["rungs"]) == ("loss", [3])
    curves = guest.get(f"{study}/curves").json()
    assert curves["figure"]["data"][-1]["customdata"][0] == [best.trial]  # over the others
    assert curves["count"] == curves["shown"] == len(curves["figure"]["data"])
    few = guest.get(f"{study}/curves", params={"most": 5}).json()
    assert (few["shown"], few["count"]) == (5, curves["count"])
    names = [trace["name"] for trace in few["figure"]["data"]]
    assert names[:3] == ["10 to 90 % of trials", "25 to 75 % of trials", "median of trials"]
    assert len(names) == 3 + 5
    assert guest.get(f"{study}/curves", params={"metric": "los"}).json()["fix"] == "did you mean 'loss'?"


def test_trials_are_filtered_and_sorted(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    path = f"/api/v1/studies/{served.study('anne', State.RUNNING, run)}/trials"

    def asked(**query: object) -> list[dict[str, object]]:
        return list(served.client("guest").get(path, params={"limit": 200, **query}).json()["items"])  # type: ignore[dict-item]

    assert [one["trial"] for one in asked(order="best")][: len(run.record.ranked())] == [
        one.trial.trial for one in run.record.ranked()
    ]
    stopped = asked(status="stopped")
    assert stopped
    assert {one["status"] for one in stopped} == {"stopped"}
    assert [one["trial"] for one in asked(text="00003")] == ["00003"]
    assert asked(text="no such words") == []


def test_studies_are_compared(served: Served, tmp_path: Path) -> None:
    runs = [a_run(tmp_path / str(number)) for number in (1, 2)]
    two = [served.study("anne", State.RUNNING, run) for run in runs]
    guest = served.client("guest")
    found = guest.get("/api/v1/comparison", params={"study": two}).json()
    assert [row["study"].split()[0] for row in found["rows"]] == [f"@{study}" for study in two]
    assert [line["name"] for line in found["figure"]["data"]] == [row["study"] for row in found["rows"]]
    report = json.loads(compare(runs).plot().figure.to_json())
    assert [line["x"] for line in found["figure"]["data"]] == [line["x"] for line in report["data"]]
    assert guest.get("/api/v1/comparison", params={"study": [two[0], two[0]]}).status_code == 409
    assert guest.get("/api/v1/comparison", params={"study": two[0]}).status_code == 422


REFINABLE = STUDY.replace(
    '"x": tuner.uniform(0, 1)',
    '"lr": tuner.loguniform(1e-4, 1e-1), "kind": tuner.choice(["a", "b"]), "depth": tuner.randint(1, 9), '
    '"momentum": tuner.uniform(0, 1).when(kind="b"), "width": tuner.choice([16, 32, 64])',
)


def test_a_refined_study_is_shown_and_then_submitted_by_who_asks(served: Served, tmp_path: Path) -> None:
    study = served.service.submit(submission(REFINABLE), served.users["anne"]).id
    path, bert = f"/api/v1/studies/{study}:refine", served.client("bert", timeout=60)
    assert bert.post(path, json={}).json()["fix"] == "wait for it"
    run = a_run(tmp_path)
    file = served.service.folder.bundle(study) / "parabola.py"
    info = json.loads((Path(run.path) / "run.json").read_text())
    (Path(run.path) / "run.json").write_text(json.dumps(info | {"study_file": str(file)}))
    (Path(run.path) / "study.py").write_text(REFINABLE)
    named(served, study, run=run.path)
    shown = bert.post(path, json={"kind": "narrowed"}).json()
    assert shown["study"] is None
    assert "+    name='parabola-narrowed'," in shown["diff"]
    assert served.service.studies()[0].id == study
    sent = bert.post(path, json={"kind": "narrowed", "submit": True}).json()
    assert sent["diff"] == shown["diff"]
    new = served.service.study(sent["study"]["id"])
    assert (new.name, new.user, new.state) == ("parabola_narrowed.py", "bert", "checking")
    assert (served.service.folder.bundle(new.id) / "parabola.py").read_text() == REFINABLE


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://wandb.ai/us/bowl/groups/bowl%2F1", "https://wandb.ai/us/bowl/groups/bowl%2F1"),
        ("javascript:alert(1)", None),
        ("javascript://wandb.ai/%0Aalert(1)", None),
        ("https://user:word@wandb.ai/", None),
        (["https://wandb.ai"], None),
        (None, None),
    ],
)
@pytest.mark.parametrize(("mirror", "told"), [("wandb", "online"), ("mlflow", "http://127.0.0.1:5000")])
def test_a_search_is_found_at_wandb_and_mlflow(
    served: Served, tmp_path: Path, url: object, shown: str | None, mirror: str, told: str
) -> None:
    run = a_run(tmp_path, reports=2)
    info = json.loads((Path(run.path) / "run.json").read_text())
    (Path(run.path) / "run.json").write_text(json.dumps(info | {mirror: told}))
    (Path(run.path) / mirror).mkdir()
    (Path(run.path) / mirror / "mirror.json").write_text(json.dumps({"events": 1, "best": None, "url": url}))
    study = served.study("anne", State.RUNNING, run)
    found = served.client("guest").get(f"/api/v1/studies/{study}/summary").json()
    assert (found[f"{mirror}_url"], found["mlflow"]) == (shown, mirror == "mlflow")


def test_pages_name_only_assets_of_this_server(served: Served) -> None:
    for path in ("/login", "/welcome"):
        page = served.client().get(path)
        assert page.status_code == 200
        assert "http" not in page.text.replace("https://www.w3.org", "")
    for name in ("page.js", "enter.js", "style.css", "icon.svg"):
        assert served.client().get(f"/assets/{name}").status_code == 200
    for name in ("page.html", "..%2fsettings.py", "nothing.js"):
        assert served.client().get(f"/assets/{name}").status_code == 404


def test_a_browser_gets_an_asset_again_only_if_it_has_changed(served: Served) -> None:
    client = served.client()
    first = client.get("/assets/style.css")
    again = client.get("/assets/style.css", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert client.get("/assets/style.css", headers={"If-None-Match": '"another"'}).content == first.content


def test_figures_of_the_page_look_as_those_of_reports_and_notebooks(served: Served) -> None:
    """Colours stood in two files, and bands in three."""
    script = served.client().get("/assets/looks.js").text
    told = {line.split()[2]: json.loads(line.split(" = ", 1)[1].rstrip(";")) for line in script.splitlines()}
    assert told["THEMES"] == figure.THEMES
    assert told["FONT"] == figure.FONT
    for path in ASSETS.glob("*.js"):
        assert not re.search(r"#[0-9a-fA-F]{6}\b", path.read_text()), path.name  # no colour of its own


@needs_browser
def test_in_a_browser_a_user_logs_in_and_sees_what_happens(served: Served, tmp_path: Path, browser: Any) -> None:
    link = served.client("chief").post("/api/v1/users", json={"name": "dora", "role": "viewer"}).json()["link"]
    run = a_run(tmp_path, reports=5)
    (Path(run.path) / "report.html").write_text(HOSTILE)
    info = json.loads((Path(run.path) / "run.json").read_text())
    (Path(run.path) / "run.json").write_text(json.dumps(info | {"report": "report.html"}))
    served.study("anne", State.RUNNING, run)
    page, complaints = opened(browser)
    page.goto(link)
    page.fill("[name=name]", "dora")
    page.fill("[name=password]", PASSWORD)
    page.click("button")
    page.wait_for_selector("#age.fresh")
    assert "#" not in page.url
    page.click("td.name a")
    page.wait_for_selector("#curves.js-plotly-plot")
    with page.expect_popup() as report:
        page.click("a:has-text('report')")
    wait_for(lambda: report.value.title() not in ("", "?"))
    assert report.value.title() == "kept out"
    page.goto(served.url)
    named(served, served.study("bert", State.QUEUED), name=NAME)
    page.wait_for_selector(f"td:has-text({NAME!r})")
    served.service.cancel(2, served.users["bert"])
    page.wait_for_selector(".state.cancelled")
    wait_for(lambda: page.title() == "1 running, 0 waiting · tuner")
    page.click("#leave")
    page.wait_for_url("**/login")
    page.fill("[name=name]", "dora")
    page.fill("[name=password]", "not the right one")
    page.click("button")
    page.wait_for_selector('#problem:has-text("the service needs a user\'s name and password")')
    assert [text for text in complaints if "401" not in text] == []
    page.context.close()


@needs_browser
def test_in_a_browser_several_studies_are_steered_at_once(served: Served, tmp_path: Path, browser: Any) -> None:
    mine = [served.study("bert", State.QUEUED) for _ in range(2)]
    other = served.study("anne", State.RUNNING, a_run(tmp_path))
    page, complaints = logged_in(browser, served, "bert")
    assert page.locator("#toolbar button:enabled").count() == 0
    for study in (*mine, other):
        page.check(f"[name=chosen][value='{study}']")
    assert page.text_content("#chosen") == "3 chosen, 2 yours:"
    page.fill("[name=priority]", "-3")
    page.press("[name=priority]", "Enter")
    page.wait_for_selector("#told:has-text('2 studies: changed.')")
    page.click("[data-verb=pause]")
    page.wait_for_selector("#told:has-text('2 studies: asked to pause.')")
    found = {study: served.service.study(study) for study in (*mine, other)}
    assert [(found[study].state, found[study].priority) for study in mine] == [("paused", -3)] * 2
    assert (found[other].state, found[other].priority) == ("running", 0)
    page.fill("[name=priority]", "9")  # for admins
    page.click("[data-verb=priority]")
    assert served.service.study(mine[0]).priority == -3
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[data-verb=cancel]")
    page.wait_for_selector(f"tr[data-key='{mine[1]}'] .state.cancelled")
    assert served.service.study(other).state == "running"
    assert complaints == []
    page.context.close()


@needs_browser
def test_in_a_browser_a_study_is_read_by_its_trials(served: Served, tmp_path: Path, browser: Any) -> None:
    run = a_run(tmp_path)
    study = served.study("anne", State.RUNNING, run)
    assert run.best
    page, complaints = logged_in(browser, served, "guest", f"/studies/{study}")
    page.wait_for_selector("#curves.js-plotly-plot .trace")
    rows = page.locator("#trials tbody tr")
    assert rows.count() == 24
    assert rows.first.get_attribute("data-key") == run.best.trial
    table = served.client("guest").get(f"/api/v1/studies/{study}/table", params={"order": "best"}).json()
    cells = [f"{cell['text']} {cell['aside']}".strip() for cell in table["rows"][0]["cells"]]
    assert rows.first.locator("td").all_text_contents() == cells
    assert page.locator("#trials thead th").all_text_contents() == [column["name"] for column in table["columns"]]
    numbers = [0.00093, 1.2345e-05, 0.123456, 1234567.8, 999.96, 9999.7, 12, -0.5, 1e30]
    assert page.evaluate("async n => n.map((await import('/assets/text.js')).short)", numbers) == list(
        map(short, numbers)
    )
    page.select_option("#trial-status", "stopped")
    wait_for(lambda: rows.count() < 24)
    assert set(page.locator("#trials .state").all_text_contents()) == {"stopped"}
    page.keyboard.press("/")
    page.keyboard.type("no such trial")
    page.wait_for_selector("#trials:has-text('No trial fits the filter.')")
    page.goto(f"{served.url}/studies/{study}#trial={run.best.trial}")
    page.wait_for_selector("dialog[open] td[data-name=loss]")
    assert page.locator("dialog [aria-label=epochs] tbody tr").count() == len(run.best.epochs)
    page.keyboard.press("Escape")
    wait_for(lambda: page.evaluate("!document.querySelector('dialog').open && !location.hash"))
    assert page.locator("[data-verb]").count() == 0  # a viewer steers nothing
    assert complaints == []
    page.context.close()


@needs_browser
def test_in_a_browser_a_running_study_has_the_figures_of_its_report(
    served: Served, tmp_path: Path, browser: Any
) -> None:
    run = a_run(tmp_path)
    study = served.study("anne", State.RUNNING, run)
    page, complaints = logged_in(browser, served, "guest", f"/studies/{study}")
    drawn = page.frame_locator("#figure").locator("#figure")
    for kind in page.locator("[name=figure]").evaluate_all("all => all.map(one => one.value)"):
        page.check(f"[name=figure][value={kind}]")
        report = getattr(run.plot, kind)()
        title = " ".join(report.layout.title.text.split("<br>")).replace("&lt;", "<").replace("&amp;", "&")
        wait_for(lambda title=title: page.text_content("#figure-title") == title)
        kinds = sorted({trace.type for trace in report.data})
        wait_for(lambda kinds=kinds: _shown(drawn, "[...new Set(place.data?.map(one => one.type))].sort()") == kinds)
    page.click("summary:has-text('Its numbers as a table')")
    page.check("[name=figure][value=history]")
    wait_for(lambda: _shown(drawn, "place.layout?.uirevision") == "history")
    cells = page.locator("[aria-label='numbers of the figure: History'] tbody tr")
    wait_for(lambda: cells.count() == len(run.record.trials))
    assert cells.nth(0).locator("td").nth(1).text_content() == "00000"

    def found_under_the_pointer() -> bool:  # plotly tells clicks on what it has found there
        page.mouse.move(0, 0)
        drawn.locator(".point").first.hover(force=True)
        return bool(drawn.locator(".hovertext").count())

    wait_for(found_under_the_pointer)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("dialog[open] [aria-label=epochs]")
    assert [text for text in complaints if not HARMLESS.search(text)] == []
    page.context.close()


def _shown(drawn: Any, expression: str) -> Any:
    return drawn.evaluate(f"place => {expression}")


@needs_browser
def test_in_a_browser_a_redrawn_figure_keeps_its_zoom(served: Served, tmp_path: Path, browser: Any) -> None:
    run = a_run(tmp_path)
    study = served.study("anne", State.RUNNING, run)
    page, _ = logged_in(browser, served, "anne", f"/studies/{study}")
    drawn = page.frame_locator("#figure").locator("#figure")
    drawn.locator(".point").first.wait_for()
    _shown(drawn, "window.Plotly.relayout(place, {'xaxis.range': [2, 5]})")
    _shown(drawn, "void (place.redrawn = 0, place.on('plotly_afterplot', () => { place.redrawn += 1; }))")
    served.service.change(study, served.users["anne"], priority=-3)
    wait_for(lambda: _shown(drawn, "place.redrawn") > 0)
    assert _shown(drawn, "place.layout.xaxis.range") == [2, 5]
    page.context.close()


@needs_browser
def test_in_a_browser_a_study_is_noted_down_and_submitted_again_with_changes(
    served: Served, tmp_path: Path, browser: Any
) -> None:
    study = served.study("anne", State.RUNNING, a_run(tmp_path))
    page, complaints = logged_in(browser, served, "anne", f"/studies/{study}")
    page.fill("[name=note]", "the <b>first</b> try #Früh")
    page.keyboard.press("Enter")
    page.wait_for_selector("#told:has-text('order')")  # it is carried out once the search runs
    page.wait_for_selector("h2 .tag:has-text('#Früh')")
    served.service.note(study, served.users["anne"], "#loud", trial="3")  # about a trial, not the study
    assert _found(served, "#loud") == []
    assert served.service.tags([study]) == {study: ["Früh"]}
    found = {text: _found(served, text) for text in ("#frü", "#first", "früh", "parabola #früh", "#früh trash")}
    assert found == {"#frü": [study], "#first": [], "früh": [], "parabola #früh": [study], "#früh trash": []}
    page.click("summary:has-text('Who changed what')")
    page.wait_for_selector("[aria-label=changes] td:has-text('note')")
    page.click("summary:has-text('Study file')")
    wait_for(lambda: page.input_value("#study-file") == STUDY)
    page.fill("#study-file", STUDY.replace("trials=4", "trials=5"))
    page.click("text=Submit it as a new study")
    page.wait_for_selector(f"a:has-text('@{study + 1} ')")
    assert served.service.study(study + 1).user == "anne"
    file = served.client("guest").get(f"/api/v1/studies/{study + 1}/file").json()
    assert file == {"name": "parabola.py", "text": STUDY.replace("trials=4", "trials=5")}
    assert complaints == []
    page.context.close()
    page, _ = logged_in(browser, served, "guest", f"/studies/{study}")
    page.press("summary:has-text('Study file')", "Enter")  # a click may miss what moves while the page is drawn
    wait_for(lambda: page.input_value("#study-file") == STUDY)
    assert page.locator("text=Submit it as a new study").is_hidden()
    wait_for(lambda: page.get_attribute("#study-file", "readonly") is not None)
    page.context.close()


def _found(served: Served, text: str) -> list[int]:
    return [each.id for each in served.service.studies(text=text)]


def test_a_study_is_submitted_again_as_it_was_with_another_file(served: Served) -> None:
    anne, files = served.client("anne"), {"parabola.py": STUDY.encode(), "beside.py": b"WIDTH = 3\n"}
    first = served.service.submit(
        Submission("parabola.py", files, priority=-2, preemptible=True, devices=1, options={"trials": 9}),
        served.users["anne"],
    )
    told = anne.post(f"/api/v1/studies/{first.id}:again", json={"text": "import beside\n" + STUDY}).json()
    again = served.service.study(told["id"])
    bundle = served.service.folder.bundle(again.id)
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == {
        "parabola.py": b"import beside\n" + files["parabola.py"],
        "beside.py": files["beside.py"],
    }
    with served.service.database.reading() as connection:
        assert studies.wanted_devices(connection, again.id) == 1
    assert (again.priority, again.preemptible, again.options) == (-2, True, {"trials": 9})
    assert anne.post("/api/v1/studies/999:again", json={"text": STUDY}).status_code == 404
    keyed = {"Idempotency-Key": "one"}
    twice = [anne.post(f"/api/v1/studies/{first.id}:again", json={"text": STUDY}, headers=keyed) for _ in range(2)]
    assert twice[0].json()["id"] == twice[1].json()["id"]
    assert twice[0].headers["location"] == f"/api/v1/studies/{twice[0].json()['id']}"
    long = STUDY + "#" * (1_000_000 - len(STUDY.encode()))
    assert anne.post(f"/api/v1/studies/{first.id}:again", json={"text": long}).status_code == 201
    assert anne.post(f"/api/v1/studies/{first.id}:again", json={"text": long + "#"}).status_code == 413


def test_a_study_in_json_that_is_submitted_again_is_checked_like_a_new_one(served: Served) -> None:
    first = served.service.submit(of_json(json.dumps(furnace()).encode()), served.users["anne"]).id
    anne, path = served.client("anne"), f"/api/v1/studies/{first}:again"
    file = anne.get(f"/api/v1/studies/{first}/file").json()
    assert file["name"] == "study.json"
    for text in (
        "not json",
        "{}",
        "[1]",
        json.dumps({**furnace(), "name": 3}),
        json.dumps({**furnace(), "name": "x" * 500}),
    ):
        assert anne.post(path, json={"text": text}).status_code == 422, text
    again = anne.post(path, json={"text": json.dumps({**json.loads(file["text"]), "seed": 7})}).json()["id"]
    assert served.service.study(again).external
    assert json.loads(anne.get(f"/api/v1/studies/{again}/file").json()["text"])["seed"] == 7


@needs_browser
def test_in_a_browser_an_admin_looks_after_users_and_everybody_after_tokens(served: Served, browser: Any) -> None:
    page, complaints = logged_in(browser, served, "chief", "/account")
    page.fill("[data-make=user] [name=name]", "dora")
    page.click("text=Add a user")
    page.wait_for_selector("#made:has-text('dora sets a password with this link')")
    row = page.locator("tr[data-user=dora]")
    row.locator("[name=role]").select_option("worker")
    row.locator("[name=most_devices]").fill("2")
    row.locator("text=Save").click()

    def dora() -> dict[str, Any]:
        users = served.client("chief").get("/api/v1/users", params={"limit": 200}).json()["items"]
        return next(user for user in users if user["name"] == "dora")

    wait_for(lambda: (dora()["role"], dora()["most_devices"], dora()["most_hours"]) == ("worker", 2, None))
    page.on("dialog", lambda dialog: dialog.accept())
    row.locator("text=Remove").click()
    wait_for(lambda: dora()["disabled"])
    row.locator("text=Take back").click()
    wait_for(lambda: not dora()["disabled"])
    page.context.close()
    assert complaints == []

    page, _ = logged_in(browser, served, "anne", "/account")
    page.fill("[data-make=webhook] [name=url]", "https://127.0.0.1/hook")
    page.click("text=Add a webhook")
    page.wait_for_selector("#told:has-text('127.0.0.1')")  # refused, and what was typed stays
    assert page.input_value("[data-make=webhook] [name=url]") == "https://127.0.0.1/hook"
    page.fill("[data-make=token] [name=name]", "nightly")
    page.select_option("[data-make=token] [name=role]", "viewer")
    page.click("text=Create a token")
    secret = page.text_content("#made code")
    answer = served.client(headers={"Authorization": f"Bearer {secret}"}).get("/api/v1/users/me")
    assert answer.json()["role"] == "viewer"
    page.locator("[aria-label=tokens] tr:has-text('nightly') button").click()
    wait_for(lambda: page.locator("[aria-label=tokens] tr:has-text('nightly')").count() == 0)
    assert page.locator("text=Add a user").count() == 0
    page.context.close()
    page, _ = logged_in(browser, served, "guest", "/account")
    page.wait_for_selector("[data-make=password]")
    assert page.input_value("[data-make=token] [name=role]") == "viewer"
    assert page.locator("[data-make]").evaluate_all("all => all.map(one => one.dataset.make)") == ["token", "password"]
    assert page.locator("[data-make=token] option:not([disabled])").all_text_contents() == ["viewer"]
    page.context.close()


@needs_browser
def test_in_a_browser_a_trial_that_exploded_and_failed_does_not_set_the_axis(
    served: Served, tmp_path: Path, browser: Any
) -> None:
    def exploding(config: Any, epoch: int) -> float:
        if config["depth"] > 6:
            return 1e30 if epoch == 1 else math.nan
        return loss(config, epoch)

    study = served.study("anne", State.RUNNING, a_run(tmp_path, curve=exploding))
    page, _ = logged_in(browser, served, "guest", f"/studies/{study}")
    page.wait_for_selector("#curves.js-plotly-plot .trace")
    assert "failed: diverged" in page.locator("#trials .state").all_text_contents()
    low, high = page.evaluate("document.getElementById('curves').layout.yaxis.range")
    assert -1 < low < high < 10
    assert "report" not in page.locator(".links a").all_text_contents()  # there is none yet
    page.context.close()


@needs_browser
def test_in_a_browser_anyone_compares_studies(served: Served, tmp_path: Path, browser: Any) -> None:
    two = [served.study("anne", State.RUNNING, a_run(tmp_path / str(number))) for number in (1, 2)]
    page, complaints = logged_in(browser, served, "guest")
    for study in two:
        page.check(f"[name=chosen][value='{study}']")
    page.click("a:has-text('Compare')")
    page.wait_for_selector("#comparison.js-plotly-plot .trace")
    assert page.locator("tbody tr").count() == 2
    assert complaints == []
    page.context.close()


@needs_browser
def test_in_a_browser_stale_data_says_so_until_the_server_is_there_again(tmp_path: Path, browser: Any) -> None:
    with serving(tmp_path) as served:
        page, _ = logged_in(browser, served, "guest")
        served.study("anne", State.QUEUED)
        page.wait_for_selector("td:has-text('@1')")
    page.wait_for_selector("#age.stale:has-text('reconnecting')")
    assert page.locator("td:has-text('@1')").count() == 1
    with serving(tmp_path, WebSettings(port=served.port), served):
        page.wait_for_selector("#age.fresh")
    page.context.close()


@needs_browser
@pytest.mark.parametrize(
    ("path", "width", "scheme"),
    [
        ("/", 390, "dark"),
        ("/studies/1", 1400, "light"),
        ("/account", 390, "dark"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [("/", 1400, "light"), ("/studies/1", 390, "dark"), ("/compare?study=1&study=2", 390, "light")]
        ),
    ],
)
def test_in_a_browser_axe_finds_nothing_and_nothing_is_cut_off(
    served: Served, tmp_path: Path, browser: Any, path: str, width: int, scheme: str
) -> None:
    two = [served.study("anne", State.RUNNING, a_run(tmp_path / str(number))) for number in (1, 2)]
    named(served, two[0], devices=(Device("cpu", 0), Device("cpu", 1)), name="a_rather_long_name_of_a_study_" * 2)
    served.study("bert", State.QUEUED)
    served.service.cancel(served.study("bert", State.QUEUED), served.users["bert"])
    user = "chief" if path == "/account" else "anne"
    page, complaints = logged_in(browser, served, user, path, width=width, scheme=scheme)
    if path == "/account":
        page.wait_for_selector("[data-make=user]")
    elif path != "/":
        page.wait_for_selector(".js-plotly-plot .trace")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(Path(AXE_FILE_PATH).read_text())
    found = page.evaluate("axe.run()")
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]] == []
    assert complaints == []
    page.context.close()
