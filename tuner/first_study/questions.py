"""`tuner init --ask`: the few questions that the images can't answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.errors import StudyError
from tuner.first_study.candidates import Offer
from tuner.first_study.folder_look import FirstLook, group_of
from tuner.first_study.planning import UNEVEN, Wishes, unevenness
from tuner.space.values import is_number
from tuner.trial.splitting import check_splitting

Ask = Callable[[str], str]


def asked(wishes: Wishes, look: FirstLook, offered: Offer, ask: Ask) -> tuple[Wishes, Offer]:
    """The wishes, replaced by the user's answers if given, and the remaining models.

    Args:
        wishes: from the options; an empty answer keeps them
        look: at the data
        offered: available models
        ask: shows a question and returns the answer; raises EOFError without an answer

    Raises:
        StudyError: there was no answer.
    """
    try:
        wishes = replace(wishes, minutes=_minutes(ask, wishes.minutes))
        offered = _models(ask, offered)
        if not wishes.random:
            wishes = replace(wishes, mirrored=_yes(ask, "Does a mirrored image keep its label?", default=True))
        if look.uneven >= UNEVEN:
            question = f"{unevenness(look).capitalize()}. Do all matter alike?"
            wishes = replace(wishes, evenly=_yes(ask, question, default=True))
        if look.alike.near and not look.has_groups:
            wishes = replace(wishes, group=_group(ask, look))
    except EOFError as error:
        raise StudyError("--ask needs somebody who answers, got the end of the input; leave --ask out") from error
    return wishes, offered


def _minutes(ask: Ask, default: float) -> float:
    while True:
        answer = ask(f"How many minutes may the search take? [{default:g}] ").strip()
        try:
            minutes = float(answer or default)
        except ValueError:
            minutes = 0.0
        if is_number(minutes) and minutes > 0:
            return minutes


def _models(ask: Ask, offered: Offer) -> Offer:
    names = [each.model for each in offered.candidates]
    if len(names) < 2:
        return offered
    while True:
        answer = ask(f"Which models may it have, of {', '.join(names)}? [all] ").replace(",", " ").split()
        if not answer or answer == ["all"]:
            return offered
        if set(answer) <= set(names):
            return replace(offered, candidates=tuple(each for each in offered.candidates if each.model in answer))


def _yes(ask: Ask, question: str, *, default: bool) -> bool:
    while True:
        answer = ask(f"{question} [{'Y/n' if default else 'y/N'}] ").strip().lower()
        if not answer:
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")


def _group(ask: Ask, look: FirstLook) -> str | None:
    question = "Near duplicates were found. Which pattern in file names groups the files that belong together?"
    default = look.group or ""
    while True:
        answer = ask(f"{question} [{default or 'none'}] ").strip()
        if not answer:
            return look.group
        if _tells_apart(answer, look):
            return answer


def _tells_apart(pattern: str, look: FirstLook) -> bool:
    """Whether it is a pattern that fits names of the files and makes more than one group."""
    try:
        check_splitting(look.images, None, pattern)
    except StudyError:
        return False
    groups = {group_of(item.path.name, pattern) for item in look.places}
    return len(groups) > 1
