from collections.abc import Callable
from pathlib import Path

import pytest

from tests.first_study.scenes import scene, write_scenes
from tuner.errors import StudyError
from tuner.first_study.candidates import Candidate, Offer
from tuner.first_study.folder_look import look
from tuner.first_study.planning import Wishes
from tuner.first_study.questions import asked
from tuner.trial.data_source import Folder

OFFER = Offer((Candidate("resnet18", "imagenet"), Candidate("mobilenet_v2", "imagenet")))


def answering(*answers: str) -> tuple[Callable[[str], str], list[str]]:
    left, questions = list(answers), []

    def ask(question: str) -> str:
        questions.append(question)
        if not left:
            raise EOFError
        return left.pop(0)

    return ask, questions


def write(root: Path) -> Path:
    write_scenes(root / "a", 12, 0)
    write_scenes(root / "b", 3, 100)
    scene(5).resize((48, 36)).save(root / "a" / "5 small.jpg")
    return root


def test_answers_become_wishes_and_what_makes_no_sense_is_asked_again(tmp_path: Path) -> None:
    ask, questions = answering(
        "soon", "-1", "12", "vgg", "resnet18", "perhaps", "n", "no", "(", "yes", "jpg", r"^(\d+)"
    )
    wishes, offered = asked(Wishes(), look(Folder(write(tmp_path))), OFFER, ask)
    assert wishes == Wishes(minutes=12.0, mirrored=False, evenly=False, group=r"^(\d+)")
    assert [each.model for each in offered.candidates] == ["resnet18"]
    assert len(questions) == 12


def test_enter_keeps_what_is_proposed(tmp_path: Path) -> None:
    ask, _ = answering(*[""] * 5)
    wishes, offered = asked(Wishes(minutes=7), look(Folder(write(tmp_path))), OFFER, ask)
    assert (wishes, offered) == (Wishes(minutes=7, mirrored=True, evenly=True), OFFER)


def test_nobody_who_answers_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="--ask needs somebody who answers, got the end of the input"):
        asked(Wishes(), look(Folder(write(tmp_path))), OFFER, answering()[0])
