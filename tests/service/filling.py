"""Submits studies until the disk of the storage folder is full: `python filling.py STORAGE`; says what happened."""

import sys
from pathlib import Path

from tests.service.submissions import ANNE, submission
from tuner.service.errors import ServiceError
from tuner.service.model import Limits
from tuner.service.service import Service

if __name__ == "__main__":
    service = Service(Path(sys.argv[1]), limits=Limits(free_bytes=0))
    ballast = Path(sys.argv[1]) / "ballast"
    ballast.write_bytes(bytes(300_000))
    taken = []
    refused: list[ServiceError] = []
    for number in range(200):
        try:
            taken.append(service.submit(submission(files={"data.py": b"#" * (100_000 + number)}), ANNE).id)
        except ServiceError as error:
            refused.append(error)
            if len(refused) == 3:
                break
    print(len(taken) > 0, {error.code.value for error in refused}, "a study needs room" in str(refused[0]))
    print([study.id for study in service.studies(limit=200)] == taken[::-1])
    whole = [
        path
        for path in service.folder.bundles.iterdir()
        if sorted(p.name for p in path.iterdir()) == ["data.py", "parabola.py"]
    ]
    print(sorted(int(path.name) for path in whole) == taken, len(list(service.folder.bundles.iterdir())) == len(taken))
    ballast.unlink()
    service.cancel(taken[0], ANNE)
    service.delete(taken[0], ANNE)
    print(service.submit(submission(), ANNE).id == taken[-1] + 1)
