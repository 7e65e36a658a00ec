"""`Run.confirm`: an order to a search that goes on, or its own search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.errors import RunFolderError
from tuner.orders.sending import send

if TYPE_CHECKING:
    from tuner.results.run import Run


def confirm(run: Run, top: int | None, seeds: int | None, options: Mapping[str, Any]) -> Run:
    """The run, after its search has taken the order, or has confirmed; raises RunFolderError if the search refuses.

    `options` are those of `tuner.confirm`; a running search has its own.
    """
    now: Run = type(run)(run.folder)  # in its present state
    if not now.alive:
        import tuner  # this room may not import what trains, so it calls tuner like a user

        return tuner.confirm(now, top=top, seeds=seeds, **options)
    if options:
        raise RunFolderError(
            f"confirm takes no options of a driver while the search runs, got {', '.join(options)}; leave them out"
        )
    answer = send(now, "confirm", {"top": top, "seeds": seeds}).answer()
    if answer.outcome == "refused":
        raise RunFolderError(answer.message)
    return type(run)(run.folder)
