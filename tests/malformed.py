"""Malformed study files, as many as are asked for: the same ones for the same seed."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tests.schedule import each as schedulers
from tests.search import each as searches

VALUES_MODULE = "malformed_values"  # lies beside the files
VALUES_TEXT = '''\
import collections, dataclasses, datetime, decimal, enum, fractions, itertools, pathlib
import numpy as np
import tuner
from tuner import *

def train(config): ...

class Raises:
    """Fails in whatever is asked of it, but for its making."""
    def _fail(self, *_, **__): raise RuntimeError("no\\nsuch\\nthing")
class BadRepr(Raises): __repr__ = Raises._fail
class BadStr(str): __repr__ = __str__ = Raises._fail
class BadEq(Raises): __eq__ = __ne__ = Raises._fail; __hash__ = None
class BadHash(Raises): __hash__ = Raises._fail
class BadBool(Raises): __bool__ = __len__ = Raises._fail
class BadIter(Raises): __iter__ = __next__ = Raises._fail
class BadCall(Raises): __call__ = Raises._fail
class BadGet(Raises):
    def __getattr__(self, name): raise RuntimeError(name)
class BadAll(Raises):
    __repr__ = __str__ = __eq__ = __bool__ = __iter__ = __call__ = __len__ = __int__ = __float__ = Raises._fail
    __hash__ = __lt__ = __gt__ = __getitem__ = __contains__ = Raises._fail
class BadMapping(dict):
    items = keys = values = __iter__ = __getitem__ = Raises._fail
class BadSequence(collections.UserList):
    __iter__ = __getitem__ = __len__ = Raises._fail
class BadFloat(float): __repr__ = __lt__ = __gt__ = __le__ = __ge__ = Raises._fail
class BadInt(int): __eq__ = __lt__ = __mod__ = Raises._fail; __hash__ = None
class Lines:
    def __repr__(self): return "one\\ntwo\\r\\nthree\\x1b[31m"
class NotText:
    def __repr__(self): return 3
class Colour(enum.Enum): RED = 1
@dataclasses.dataclass
class Point: x: int = 0
class Leaves:
    def __call__(self, config): exit()
LOOP = []; LOOP.append(LOOP)
LOOP_DICT = {}; LOOP_DICT["a"] = LOOP_DICT
DEEP = []
for _ in range(5000): DEEP = [DEEP]
DEEP_DICT = {}
for _ in range(5000): DEEP_DICT = {"a": DEEP_DICT}
def endless(*_): return endless()
__all__ = [name for name in globals() if not name.startswith("_")]
'''

PRELUDE = f"from {VALUES_MODULE} import *\n"
VALUES = """
'1' | 'x' | '' | ' ' | 'a' * 20_000 | 'a\\nb' | '[/red]' | '\\x1b[31mred' | '\\ud800' | 'nul\\0' | 'ünïcode' | '../..' | b'1' | b''
None | True | False | 0 | 1 | -1 | 2 | 3 | 1.5 | -0.5 | -0.0 | 1e308 | -1e308 | 5e-324 | 1e-320 | 10**6 | 10**18 | 2**63 | 2**64
10**30 | 10**307 | 10**400 | -10**400 | 10**5000 | float('nan') | float('inf') | -float('inf') | 1j | ... | NotImplemented
[] | () | {} | set() | frozenset() | {1, 2} | [1e-3, 1e-2] | (1, 2) | ['a', 'b'] | [None] | [[]] | [[1], [1]] | [{}] | [float('nan')] * 2
{'a': 1} | {1: 2} | {None: None} | {'': 1} | {'a.b': 1} | {'a': {}} | {'a': {'b': {'c': uniform(0, 1)}}} | {'lr': 1} | [{'lr': 9}]
[{'lr': None}] | [{'nowhere': 1}] | ['lr'] | [('lr', 1)] | {'grid_search': [1]} | {'grid_search': 3}
LOOP | LOOP_DICT | DEEP | DEEP_DICT | [LOOP_DICT] | (LOOP,) | {'lr': LOOP} | collections.OrderedDict(a=LOOP)
object() | object | int | type | Study | Budget | ASHA | MultiFidelityGP | History | Resources | ImageClassifier | tuner
Budget() | ASHA() | HyperOpt() | History() | Resources() | ImageClassifier() | uniform(0, 1) | choice([1, 2]) | grid_search([1, 2])
sample_from(lambda c: 1) | sample_from(endless) | uniform(0, 1).when(lr=1) | [uniform(0, 1)] | {'x': choice([uniform(0, 1)])}
(i for i in range(3)) | range(3) | range(10**9) | iter([]) | itertools.count() | map(int, 'ab') | dict.fromkeys | zip() | itertools.repeat(1)
lambda: 1 | lambda a, b: 1 | lambda *a: 1 / 0 | lambda c: exit() | lambda c: c['nowhere'] | lambda c: None | lambda c: 'yes' | lambda c: False
lambda c, *, d: 1 | endless | train | print | len | exit | str.upper | min | dict | Leaves() | BadCall()
BadRepr() | BadStr('x') | BadEq() | BadHash() | BadBool() | BadIter() | BadGet() | BadAll() | BadMapping() | BadMapping(a=1)
BadSequence([1]) | BadFloat(0.5) | BadInt(3) | [BadRepr()] | [BadEq()] | [BadAll()] | {'a': BadRepr()} | {'lr': BadAll()} | Lines() | NotText() | [Lines()]
np.float64('nan') | np.float32(0.5) | np.int64(3) | np.array([1, 2]) | np.array([]) | np.array(3) | np.array(['a'], dtype=object) | np.datetime64('nat') | np.bool_(True) | np.str_('x')
decimal.Decimal('0.5') | decimal.Decimal('NaN') | fractions.Fraction(1, 3) | datetime.timedelta(1) | datetime.datetime.max | pathlib.Path('x') | Colour.RED | Colour | Point() | Point
memoryview(b'') | bytearray(b'x') | slice(1) | type('X', (), {})() | collections.Counter('ab') | collections.UserDict(a=1) | collections.namedtuple('N', 'a')(1)
""".strip()
BAD = [value.strip() for line in VALUES.splitlines() for value in line.split(" | ")]


def _fields_of(declaration: Any) -> dict[str, str]:
    return {field.name: repr(getattr(declaration, field.name)) for field in fields(declaration)}


# Each declaration as a call of its own, with settings that work; and where in a study it belongs.
CALLS: dict[str, tuple[dict[str, str], str]] = {
    "Budget": (
        {
            "trials": "3",
            "max_epochs": "5",
            "hours": "1",
            "device_hours": "1",
            "total_epochs": "50",
            "target": "0.9",
            "min_improvement": "0.1",
        },
        "budget={}",
    ),
    "Resources": ({"cpus": "1", "gpus": "0", "strategy": "None", "placement": "'pack'"}, "resources={}"),
    **{type(one).__name__: (_fields_of(one), "scheduler={}") for one in schedulers.EAGER},
    **{
        type(one).__name__: (
            _fields_of(one),
            "search={}" + ", space={{'x': choice([1, 2])}}" * searches.is_finite_only(one),
        )
        for one in searches.EAGER
    },
    "History": ({"path": "None", "studies": "['a']", "top": "3", "portfolio": "True"}, "warm_start={}"),
    "ImageClassifier": (
        {
            "data": "'digits'",
            "model": "'resnet18'",
            "weights": "None",
            "data_dir": "'data'",
            "data_memory_gb": "1",
        },
        "trial={}, metric='val_loss', space={{'lr': uniform(0.1, 0.2)}}",
    ),
    "uniform": ({"low": "0", "high": "1"}, "space={{'x': {}}}"),
    "quniform": ({"low": "0", "high": "1", "q": "0.5"}, "space={{'x': {}}}"),
    "loguniform": ({"low": "0.1", "high": "1", "base": "10"}, "space={{'x': {}}}"),
    "qloguniform": ({"low": "0.5", "high": "1", "q": "0.5", "base": "10"}, "space={{'x': {}}}"),
    "randint": ({"low": "0", "high": "9"}, "space={{'x': {}}}"),
    "qrandint": ({"low": "0", "high": "8", "q": "2"}, "space={{'x': {}}}"),
    "lograndint": ({"low": "1", "high": "9", "base": "10"}, "space={{'x': {}}}"),
    "qlograndint": ({"low": "2", "high": "8", "q": "2", "base": "10"}, "space={{'x': {}}}"),
    "randn": ({"mean": "0", "sd": "1"}, "space={{'x': {}}}, search=Random()"),
    "qrandn": ({"mean": "0", "sd": "1", "q": "0.5"}, "space={{'x': {}}}, search=Random()"),
    "choice": ({"values": "[1, 2]"}, "space={{'x': {}}}"),
    "grid_search": ({"values": "[1, 2]"}, "space={{'x': {}}}, search=Grid()"),
    "sample_from": ({"function": "lambda c: 1"}, "space={{'x': {}, 'y': uniform(0, 1)}}, search=Random()"),
}
STUDY = {
    "name": "'malformed'",
    "trial": "train",
    "space": "{'lr': uniform(0.1, 0.2), 'x': choice(['a', 'b'])}",
    "metric": "'loss'",
    "mode": "'min'",
    "search": "Random()",
    "scheduler": "ASHA()",
    "budget": "Budget(trials=3, max_epochs=5)",
    "resources": "Resources()",
    "start_from": "[{'lr': 0.15}]",
    "warm_start": "None",
    "constraint": "lambda c: True",
    "seed": "0",
}
# Places inside of a declaration where a value of the user's goes.
PLACES = [
    "space={'lr': VALUE}",
    "space={'lr': VALUE, 'x': uniform(0, 1)}",
    "space={'x': choice([VALUE, 'b'])}",
    "space={'x': choice([VALUE, VALUE])}",
    "space={'a': {'b': VALUE}}",
    "space={VALUE: uniform(0, 1)}",
    "space={'x': choice(['a', 'b']), 'y': uniform(0, 1).when(x=VALUE)}",
    "space={'x': choice(['a', 'b']), 'y': uniform(0, 1).when(x=['a', VALUE])}",
    "space={'x': VALUE, 'y': uniform(0, 1).when(x=VALUE)}",
    "space={'x': choice(['a', VALUE]), 'y': uniform(0, 1).when(x='a')}, search=Grid()",
    "space={'lr': uniform(0.1, 0.2)}, start_from=[VALUE]",
    "space={'lr': uniform(0.1, 0.2)}, start_from=[{'lr': VALUE}]",
    "space={'x': randint(0, 9)}, start_from=[{'x': VALUE}]",
    "space={'x': choice([1, 2])}, start_from=[{'x': VALUE}]",
    "space={'x': VALUE}, start_from=[{'x': VALUE}]",
    "space={'x': sample_from(VALUE), 'y': uniform(0, 1)}, search=Random()",
    "space={'x': sample_from(lambda c: VALUE), 'y': uniform(0, 1)}, search=Random()",
    "space={'x': uniform(0, 1)}, constraint=lambda c: VALUE",
    "space={'x': uniform(0, 1)}, search=HyperOpt(), constraint=VALUE",
    "trial=ImageClassifier('digits', weights=None), metric='val_accuracy', mode='max', space={'lr': VALUE}",
    "trial=ImageClassifier('digits', weights=None), metric='val_accuracy', mode='max', space={'lr': choice([VALUE])}",
    "trial=ImageClassifier('digits', weights=None), metric='val_accuracy', mode='max', space={'optimizer': VALUE}",
    "trial=ImageClassifier('digits', weights=None), metric='val_accuracy', mode='max', space={'image_size': VALUE}",
    "trial=ImageClassifier('digits', weights=None), metric='val_accuracy', mode='max', space={'strategy': VALUE}, "
    "resources=Resources(cpus=2)",
    "trial=ImageClassifier('digits', weights=None), metric='val_accuracy', mode='max', space={VALUE: 1}",
    "trial=ImageClassifier('folder:' + VALUE, weights=None), metric='val_accuracy', mode='max', space={'lr': 0.1}",
    "warm_start=History(studies=[VALUE])",
    "search=Optuna(options={'n_startup_trials': VALUE})",
    "search=Optuna('GPSampler', options={VALUE: 1})",
]
WORKING = "study = Study('malformed', trial=train, space={'x': uniform(0, 1)}, metric='loss', mode='min')\n"
# Files that are wrong as a whole; bytes, as some are no text.
FILES = [
    b"",
    b"\n\n",
    b"study",
    b"study = ",
    b"study = Study(",
    b"def f(:\n",
    b"if True:\nx = 1\n",
    b"  x = 1\n",
    b"\tx = 1\n        y = 2\n",
    b"x = 'unfinished\n",
    b"x = '''unfinished\n",
    b"return 3\n",
    b"yield 3\n",
    b"await x\n",
    b"break\n",
    b"nonlocal x\n",
    b"from __future__ import braces\n",
    b"x = 08\n",
    b"x = 1__0\n",
    b"f'{'\n",
    b"x = " + b"(" * 300 + b")" * 300,
    b"x = " + b"[" * 150 + b"]" * 150,
    b"x = " + b"-" * 10_000 + b"1",
    b"x = " + b"1+" * 20_000 + b"1",
    b"x = " + b"9" * 10_000,
    b"\x00",
    b"x = 1\x00\n",
    b"\xff\xfe" + "x = 1\n".encode("utf-16-le"),
    b"# caf\xe9\n" + WORKING.encode(),
    b"# -*- coding: nothing-like-it -*-\n",
    b"# -*- coding: utf-16 -*-\nx = 1\n",
    b"\xef\xbb\xbf# -*- coding: latin-1 -*-\nx = 1\n",
    b"x = '\\ud800'; raise ValueError(x)\n",
    b"raise ValueError('a\\nb\\nc')\n",
    b"raise ValueError('x' * 100_000)\n",
    b"raise ValueError\n",
    b"raise Exception\n",
    b"raise BaseException('base')\n",
    b"raise GeneratorExit\n",
    b"raise StopIteration\n",
    b"raise MemoryError\n",
    b"raise RecursionError\n",
    b"raise NotImplementedError('later')\n",
    b"class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd\n",
    b"class Odd(TypeError):\n    def __str__(self): raise ValueError\nraise Odd\n",
    b"class Odd(BaseException):\n    __str__ = None\nraise Odd\n",
    b"raise ExceptionGroup('several', [ValueError(1), TypeError(2)])\n",
    b"assert False\n",
    b"exit()\n",
    b"exit(3)\n",
    b"quit('now')\n",
    b"import sys; sys.exit('why\\nnot')\n",
    b"raise SystemExit(object())\n",
    b"import nowhere_to_be_found\n",
    b"import tuner.nowhere\n",
    b"from tuner import nowhere\n",
    b"from . import beside\n",
    b"import ''\n",
    b"from tuner import *\nfrom tuner.study.declaration import nothing\n",
    b"def f(): return f()\nf()\n",
    b"class A:\n    def __getattr__(self, name): return getattr(self, name + 'x')\nA().y\n",
    b"import json; json.loads('[' * 100_000)\n",
    b"open('/nowhere/at/all')\n",
    b"1 / 0\n",
    b"undefined\n",
    b"study = undefined\n",
    b"{}['key']\n",
    b"'a'.b\n",
    b"None()\n",
    b"[][0]\n",
    b"int('a')\n",
    b"study = 3\n",
    b"study = None\n",
    b"study = []\n",
    b"study = lambda: 1\n",
    b"from tuner import *\nstudy = Study\n",
    b"from tuner import *\nstudy = Budget()\n",
    b"from tuner import *\nstudy = Study()\n",
    b"from tuner import *\nstudy = Study('a')\n",
    b"from tuner import *\nstudy = Study('a', 'b', 'c')\n",
    b"from tuner import *\nstudy = Study(*range(100))\n",
    b"from tuner import *\nstudy = Study(**{'not a name': 1})\n",
    b"from tuner import *\nstudy = Study(**{1: 1})\n",
    b"from tuner import *\nstudy = Study(name='a', name='b')\n",
    b"from tuner import *\nStudy('a', space={}, trial=print).nowhere\n",
    b"from tuner import *\nload_study(__file__)\n",
    b"from tuner import *\nuniform()\n",
    b"from tuner import *\nuniform(1)\n",
    b"from tuner import *\nuniform(1, 2, 3)\n",
    b"from tuner import *\nuniform(0, 1).when()\n",
    b"from tuner import *\nuniform(0, 1).when('lr')\n",
    b"from tuner import *\nuniform(0, 1).when(1, 2, 3)\n",
    b"from tuner import *\nuniform(0, 1).where(lr=1)\n",
    b"from tuner import *\nchoice(1, 2, 3)\n",
    b"from tuner import *\nchoice()\n",
    b"from tuner import *\nBudget(trials=3).trials = 4\n",
    b"from tuner import *\nBudget(3, 4, 5, 6, 7, 8, 9, 10)\n",
    b"import tuner\ntuner.report(loss=1)\n",
    b"import tuner\ntuner.checkpoint()\n",
    b"import tuner\ntuner.load_run('nowhere')\n",
    b"import tuner\ntuner.run(3)\n",
    b"import warnings; warnings.warn('careful')\nstudy = 1\n",
    b"__name__ = None; study = 3\n",
    b"__file__ = 3; raise ValueError\n",
    b"del __builtins__; print(1)\n",
    b"import sys; sys.modules[__name__] = None\nstudy = 3\n",
    b"globals().clear()\n",
    PRELUDE.encode() + WORKING.encode() + b"study = [study]\n",
    PRELUDE.encode() + WORKING.encode() + b"search = study; del study\n",
    PRELUDE.encode() + WORKING.replace("study =", "search =").encode(),
    PRELUDE.encode() + WORKING.encode() + b"raise ValueError(study)\n",
    PRELUDE.encode() + WORKING.encode() + b"class S(Study): pass\nstudy = S('a', trial=train, space={})\n",
]


@dataclass(frozen=True)
class StudyFile:
    """One malformed study file, and what was done to it."""

    what: str
    content: bytes


def malformed(count: int, seed: int = 0) -> list[StudyFile]:
    """So many of all there are, of each kind as many as its share; as a whole first."""
    generator = random.Random(seed)
    kinds = [list(kind) for kind in (_files(), _arguments(), _places(), _calls(), _pairs(generator))]
    found = kinds[0][: count // 3]
    rest = [kind for kind in kinds[1:] if kind]
    for kind in rest:
        generator.shuffle(kind)
    for files in itertools.zip_longest(*rest):
        found += [file for file in files if file is not None]
    return list(dict.fromkeys(found))[:count]


def _files() -> Iterator[StudyFile]:
    return (StudyFile(f"file {content[:60]!r}", content) for content in FILES)


def _arguments() -> Iterator[StudyFile]:
    """Every argument of every declaration with every bad value."""
    for name, (working, place) in CALLS.items():
        for argument, value in itertools.product(working, BAD):
            yield _study(place.format(_call(name, working | {argument: value})))
    for argument, value in itertools.product(STUDY, BAD):
        yield _study(f"{argument}={value}")


def _places() -> Iterator[StudyFile]:
    for place, value in itertools.product(PLACES, BAD):
        yield _study(place.replace("VALUE", value))


def _calls() -> Iterator[StudyFile]:
    """Unknown keywords, one too many, one too few."""
    for name, (working, place) in CALLS.items():
        for unknown in (
            "minutes",
            "nb_trials",
            "low_",
            "x",
            name.lower(),
            "class_",
            *(f"{known}s" for known in working),
        ):
            yield _study(place.format(_call(name, working | {unknown: "1"})))
        for missing in working:
            yield _study(place.format(_call(name, {n: v for n, v in working.items() if n != missing})))
        yield _study(place.format(f"{name}({', '.join([*working.values(), '1', '2', '3'])})"))
        yield _study(place.format(name))
        yield _study(place.format(f"{name}()()"))
    for unknown in ("epochs", "trails", "schedular", "objective", "direction", "search_space", "source", "_"):
        yield _study(f"{unknown}=3")
    for missing in STUDY:
        yield _study(f"{missing}=None")


def _pairs(generator: random.Random) -> Iterator[StudyFile]:
    """Two wrong at once."""
    for _ in range(2000):
        one, other = generator.sample(sorted(STUDY), 2)
        yield _study(f"{one}={generator.choice(BAD)}, {other}={generator.choice(BAD)}")


def _call(name: str, arguments: dict[str, str]) -> str:
    return f"{name}({', '.join(f'{argument}={value}' for argument, value in arguments.items())})"


def _study(changes: str) -> StudyFile:
    """A study of settings that work, changed."""
    return StudyFile(
        changes, f"{PRELUDE}settings = dict({_settings()})\nstudy = Study(**(settings | dict({changes})))\n".encode()
    )


def _settings() -> str:
    return ", ".join(f"{argument}={value}" for argument, value in STUDY.items())
