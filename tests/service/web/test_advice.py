"""What to try next, with commands that a user of the service can type."""

import json
from pathlib import Path

from tests.service.web.serving import Served, a_run
from tuner.results.findings import Advice
from tuner.service.model import State
from tuner.service.web.routes.searches import OF_STUDIES, _at_service
from tuner.text import command


def test_advice_names_the_study_and_what_the_page_can_do(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path / "with space")
    info = json.loads((Path(run.path) / "run.json").read_text())
    told = {"study_file": str(tmp_path / "space.py"), "end_reason": "trials"}
    (Path(run.path) / "run.json").write_text(json.dumps(info | told))
    study = served.study("anne", State.RUNNING, run)
    found = served.client("guest", timeout=60).get(f"/api/v1/studies/{study}/advice").json()["items"]
    by_verb = {one["verb"]: one for one in found}
    assert by_verb["refine"]["command"] == f"python -m tuner refine @{study} -o next.py"
    assert all(run.path not in (one["command"] or "") for one in found)
    confirmed = Advice("unsure", command("confirm", run.path))
    assert _at_service(confirmed, f"@{study}") == confirmed.command  # `confirm @17` is no command
    assert "confirm" not in OF_STUDIES
    if "extend" in by_verb:
        trials = by_verb["extend"]["limits"]["trials"]
        assert by_verb["extend"]["command"] == f"python -m tuner set @{study} --trials {trials:g}"
