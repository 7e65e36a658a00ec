"""A driver without Ray: searches `1 / epoch + (x - 0.3) ** 2` in this process, told and telling as the real one does.

$EPOCH_SECONDS is how long an epoch takes; a file `crash` in the storage folder ends it in the middle, as a kill does.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tuner import load_run
from tuner.history.events import Event
from tuner.history.run_info import FORMAT, new_run_folder, now, write_info
from tuner.lifecycle.allotment import Allotment
from tuner.loop.search_loop import SearchLoop
from tuner.orders.inbox import Inbox, open_inbox
from tuner.schedule import Decision
from tuner.space import space_record
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.lease import held
from tuner.study.declaration import Study
from tuner.study.file import load_study

EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0.05"))


class Driver:
    def __init__(self, task: dict[str, Any], file: Path) -> None:
        self.task, self.file = task, file
        self.allotment = Allotment.of(task, LocalFolder(file.parent))
        self.reason: str | None = None
        signal.signal(signal.SIGTERM, lambda *_: self.ask("SIGTERM"))

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason

    def on_event(self, event: Event) -> None:
        if event["event"] == "order_obeyed" and event["verb"] == "pause" and not event.get("late"):
            self.ask(f"paused by {event['by']}")

    def tell(self, name: str, told: dict[str, Any]) -> None:
        LocalFolder(self.file.parent).write(name, json.dumps(told).encode())

    def begin(self) -> tuple[Study, Folder, dict[str, Any], list[Event]]:
        if self.task["run"] is None:
            named = {"study_file": str(self.task["study"])}
            study = load_study(self.task["study"]).with_options(**self.task["options"])
            folder = new_run_folder(self.task["storage"], study.name)
            folder.write("study.py", Path(self.task["study"]).read_bytes())
            return study, folder, {"options": self.task["options"], "sessions": 1, "started": now()} | named, []
        run = load_run(self.task["run"])
        options = run.info["options"] | run.record.steered.limits | self.task["limits"]
        study = load_study(Path(run.path) / "study.py").with_options(**options)
        return study, run.folder, run.info | {"options": options, "sessions": run.info["sessions"] + 1}, run.events

    def search(self) -> str:
        study, folder, info, history = self.begin()
        with held(folder):
            info |= {"format": FORMAT, "study": study.name, "metric": study.metric, "mode": study.mode}
            info |= {"status": "running", "space": space_record(study.search_space), "rungs": [], "concurrency": 1}
            info |= {"budget": {"trials": study.budget.trials, "max_epochs": study.budget.max_epochs}}
            write_info(folder, info)
            opening: dict[str, Any] = {"limits": {}}
            at_once = 1 if self.allotment is None else self.allotment.expected_at_once
            loop = SearchLoop(study, folder, concurrency=at_once, history=history, listeners=[self], opening=opening)
            open_inbox(folder)
            inbox = Inbox(folder, store_answers=loop.flush)
            self.tell("begun.json", {"run": folder.uri})
            self.drive(loop, inbox)
            if self.allotment is not None:
                self.allotment.close()
            loop.end(None if loop.stopped else self.reason)
            inbox.look()
            loop.close()
            status = "interrupted" if self.reason and not loop.stopped else "finished"
            reason = self.reason if status == "interrupted" else loop.end_reason
            write_info(folder, info | {"status": status, "interrupted_by": self.reason, "end_reason": reason})
        return status

    def drive(self, loop: SearchLoop, inbox: Inbox) -> None:
        """All running trials train an epoch each, then report."""
        running: dict[str, tuple[int, float]] = {}  # the epoch and x of each
        while not self.leaves(loop, inbox):
            self.share(loop, len(running))
            while (start := loop.next_action()) is not None:
                running[start.trial] = loop.record.trials[start.trial].last_checkpoint, start.config["x"]
            if loop.finished:
                return
            time.sleep(EPOCH_SECONDS)
            for trial, (epoch, x) in list(running.items()):
                running[trial] = epoch + 1, x
                metrics = {"loss": 1 / (epoch + 1) + (x - 0.3) ** 2}
                if loop.report(trial, epoch + 1, metrics, saves=False) is not Decision.CONTINUE:
                    del running[trial]

    def share(self, loop: SearchLoop, busy: int) -> None:
        if self.allotment is not None:
            self.allotment.look(busy)
            loop.most_at_once = self.allotment.at_once

    def leaves(self, loop: SearchLoop, inbox: Inbox) -> bool:
        for order in inbox.look():
            loop.obey(order)
            inbox.done(order)
        if (Path(self.task["storage"]) / "crash").exists() and loop.record.trials:
            print("Segmentation fault (core dumped)", flush=True)
            os._exit(139)
        return self.reason is not None or loop.stopped


def main(file: Path) -> None:
    task = json.loads(file.read_text())
    if task["cpus"]:
        os.sched_setaffinity(0, task["cpus"])
    driver = Driver(task, file)
    driver.tell("ended.json", {"status": driver.search(), "error": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
