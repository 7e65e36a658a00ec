"""`tuner show --web`: the page of one run, without a server to set up."""

from __future__ import annotations

from tuner.cli.at_service import is_study, located, study_of
from tuner.cli.outcome import SUCCESS
from tuner.installation import check_serves


def show_in_browser(run: str, port: int | None) -> int:
    """Serve the page until Ctrl-C; for a service's study, print its page's address. Returns the exit code."""
    if is_study(run):
        study = study_of(run)
        print(f"{study.server}/studies/{study.id}")
        return SUCCESS
    check_serves()
    from tuner.results import load_run
    from tuner.service.one_run import OneRun
    from tuner.service.web.server import show
    from tuner.service.web.settings import WebSettings
    from tuner.temporary import OwnedFolder, sweep

    found = load_run(located(run))
    sweep()
    with OwnedFolder("show") as folder, OneRun(found, folder) as service:
        show(service, WebSettings(port=port or 0), say=lambda text: print(text, flush=True))
    return SUCCESS
