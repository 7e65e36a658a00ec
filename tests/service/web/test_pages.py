"""The pages for browsers: by requests, and in a real one."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.html_report.browsing import browsers, needs_browser
from tests.service.web.serving import PASSWORD, Served, a_run, serving
from tuner.service.database import studies
from tuner.service.model import Device, State

NAME = "<script>document.title='taken'</script>"
HOSTILE = """<title>?</title><script>
fetch("/api/v1/users/me").then(() => document.title = "read", () => document.title = "kept out");
try { document.cookie; document.title = "cookies" } catch {}
</script>"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        yield found


def named(served: Served, study: int, **columns: object) -> int:
    with served.service.database.changing() as connection:
        studies.update(connection, study, **columns)
    return study


def test_the_first_page_is_for_those_who_have_logged_in(served: Served) -> None:
    answer = served.client().get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert served.client().get("/?part=true").status_code == 401
    page = served.client("guest").get("/")
    assert page.status_code == 200
    assert "Nothing runs or waits" in page.text
    assert "unsafe" not in page.headers["content-security-policy"]


def test_the_first_page_shows_what_waits_why_and_who_has_what(served: Served, tmp_path: Path) -> None:
    progress = {"metric": "loss", "mode": "min", "best": 0.25, "best_trial": "00001", "trials": {"completed": 3}}
    progress |= {"epochs": 9, "updated": time.time(), "wanted": 12}
    running = served.study("anne", State.RUNNING, a_run(tmp_path, reports=2))
    named(served, running, progress=progress, devices=(Device("cpu", 0),))
    named(served, served.study("bert", State.QUEUED), name=NAME)
    text = served.client("guest").get("/").text
    for shown in (f"@{running}", "3 of 12 trials", "loss 0.25", f'href="/api/v1/studies/{running}/report"'):
        assert shown in text
    assert "<title>1 running, 1 waiting · tuner</title>" in text
    assert NAME not in text
    assert "&lt;script&gt;" in text


def test_pages_name_only_assets_of_this_server(served: Served) -> None:
    for path in ("/login", "/welcome"):
        page = served.client().get(path)
        assert page.status_code == 200
        assert "http" not in page.text.replace("https://www.w3.org", "")
    for name in ("page.js", "enter.js", "style.css", "icon.svg"):
        assert served.client().get(f"/assets/{name}").status_code == 200
    for name in ("page.html", "..%2fsettings.py", "nothing.js"):
        assert served.client().get(f"/assets/{name}").status_code == 404


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with browsers() as found:
        yield found


@needs_browser
def test_in_a_browser_a_user_logs_in_and_sees_what_happens(served: Served, tmp_path: Path, browser: object) -> None:
    link = served.client("chief").post("/api/v1/users", json={"name": "dora", "role": "viewer"}).json()["link"]
    run = a_run(tmp_path, reports=5)
    (Path(run.path) / "report.html").write_text(HOSTILE)
    served.study("anne", State.RUNNING, run)
    page = browser.new_context().new_page()  # type: ignore[attr-defined]
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(link)
    page.fill("[name=name]", "dora")
    page.fill("[name=password]", PASSWORD)
    page.click("button")
    page.wait_for_selector("#age.fresh")
    assert "#" not in page.url
    with page.expect_popup() as opened:
        page.click("a:has-text('report')")
    opened.value.wait_for_function("document.title !== '?'")
    assert opened.value.title() == "kept out"
    named(served, served.study("bert", State.QUEUED), name=NAME)
    page.wait_for_selector(f"td:has-text({NAME!r})")
    served.service.cancel(2, served.users["bert"])
    page.wait_for_selector(".state.cancelled")
    assert page.title() == "1 running, 0 waiting · tuner"
    page.click("#leave")
    page.wait_for_url("**/login")
    page.fill("[name=name]", "dora")
    page.fill("[name=password]", "not the right one")
    page.click("button")
    page.wait_for_selector('#problem:has-text("the service needs a user\'s name and password")')
    assert [text for text in complaints if "401" not in text] == []
    page.context.close()
