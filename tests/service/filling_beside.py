"""Fills the disk of the storage folder beside a study that runs: `python filling_beside.py STORAGE`; says what happened.

What is left is enough for the study's events, and less than a new study has to leave.
"""

import sys
from pathlib import Path

from tests.service.running import running, wait_for, wait_until
from tests.service.submissions import ANNE, STUDY, submission
from tuner.service.errors import ServiceError
from tuner.service.model import Limits, State
from tuner.service.service import Service

LONG = STUDY.replace("trials=4", "trials=4000")


def epochs(service: Service, study: int) -> int:
    found = service.progress(study)
    return 0 if found is None else found.epochs


if __name__ == "__main__":
    storage = Path(sys.argv[1])
    with running(storage, limits=Limits(free_bytes=2_000_000)) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 2)
        (storage / "ballast").write_bytes(bytes(service.folder.free_bytes - 1_500_000))
        refused = None
        try:
            service.submit(submission(), ANNE)
        except ServiceError as error:
            refused = error
        print(refused and refused.code, len(service.studies()))
        before = epochs(service, study)
        wait_for(lambda: epochs(service, study) > before + 5)
        print(service.study(study).state, service.study(study).attempt)
        (storage / "ballast").unlink()
        other = service.submit(submission(), ANNE).id
        service.finish(study, ANNE)
        print(wait_until(service, study, State.FINISHED).state, wait_until(service, other, State.FINISHED).state)
