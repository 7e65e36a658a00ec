"""Pages of a served service in a real browser, as their users open them.

Their Content-Security-Policy refuses `eval`, by which Playwright's `wait_for_function` asks again: it works only if
its first question is answered with yes. `wait_for` of `tests.searches` asks from here.
"""

from typing import Any

from tests.html_report.browsing import PATIENCE_MS
from tests.service.web.serving import Served
from tuner.service.database import studies


def named(served: Served, study: int, **columns: object) -> int:
    with served.service.database.changing() as connection:
        studies.update(connection, study, **columns)
    return study


def opened(browser: Any, width: int = 1400, scheme: str = "light", **options: Any) -> tuple[Any, list[str]]:
    """A page in a window of its own, and what it complains of."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options).new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    return page, complaints


def logged_in(browser: Any, served: Served, user: str, path: str = "/", **options: Any) -> tuple[Any, list[str]]:
    """The same of a user, whose token stands for a password."""
    page, complaints = opened(browser, **options)
    page.context.set_extra_http_headers({"Authorization": f"Bearer {served.tokens[user]}"})
    page.goto(served.url + path)
    page.wait_for_selector("#age.fresh")
    return page, complaints
