"""What users read of an exception that Ray passes on."""

from ray.air._internal.util import StartTraceback
from ray.exceptions import RayTaskError

from tuner.driver.ray_inside.ray_errors import message_of, text_of

TRACE = "\x1b[36mray::train()\x1b[39m (pid=7, ip=127.0.0.1, actor_id=5f)\n  File 'x.py'\nValueError: no such layer"


def failed(cause: BaseException) -> BaseException:
    return RayTaskError("train", TRACE, cause).as_instanceof_cause()


def test_the_exception_of_a_workers_code_is_told_in_its_own_words() -> None:
    assert message_of(failed(ValueError("no such\nlayer"))) == "ValueError: no such layer"
    wrapped = StartTraceback()
    wrapped.__cause__ = KeyError("lr")
    assert message_of(failed(wrapped)) == "KeyError: 'lr'"


def test_others_are_told_by_their_first_line_without_colours() -> None:
    assert message_of(RuntimeError("\n\x1b[31m the node died\x1b[39m\nand more")) == "the node died"
    assert message_of(RuntimeError()) == "RuntimeError"
    assert text_of(failed(ValueError("no such layer"))).startswith("ray::train() (pid=7")
