"""The bodies of requests, and of answers that aren't the service's own dataclasses; pages of lists."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from fastapi import Depends, Path, Query, Request
from pydantic import (
    Base64Encoder,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    EncodedBytes,
    Field,
    StringConstraints,
    Tag,
    TypeAdapter,
)
from pydantic_core import PydanticCustomError

from tuner.service.access.accounts import LONGEST, NAME, SHORTEST
from tuner.service.model import Limits, Role, SubmittedStudy
from tuner.service.rights import HIGHEST, LOWEST
from tuner.space.mode import Mode
from tuner.space.values import LARGEST_EXACT

T = TypeVar("T")
MOST_ENTRIES = Limits().page  # of a page at any server

Id = Annotated[int, Path(ge=1, le=LARGEST_EXACT, description="a number that the service gave")]
# Where the schema says more than is checked here, the service checks it, whose messages say the rule.
Cursor = Annotated[
    str | None,
    Query(max_length=100, description="`cursor` of the page before", json_schema_extra={"pattern": "^[0-9]{1,16}$"}),
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
NewName = Annotated[Name, Field(json_schema_extra={"pattern": f"^{NAME}$"})]
Password = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST)]
NewPassword = Annotated[Password, Field(json_schema_extra={"minLength": SHORTEST})]


def _number(value: object) -> object:
    """For pydantic, true is 1. Raises PydanticCustomError."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "a number is not true or false")
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Priority = Annotated[Whole, Field(json_schema_extra={"minimum": LOWEST, "maximum": HIGHEST})]  # `Service` says so
Number = Annotated[float, BeforeValidator(_number)]
Finite = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_number)]
_SPACE = b" \t\r\n"  # `base64` breaks lines


def _size(
    request: Request, limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="entries of a page at most")] = 100
) -> int:
    most: int = request.app.state.web.service.limits.page
    return min(limit, most)


Size = Annotated[int, Depends(_size)]
Words = Annotated[str, Query(max_length=200, description="words in name, user, @number or #tag of its notes")]


class _Base64(Base64Encoder):
    """Pydantic's own decoder ignores what isn't base64, so that `****` would be an empty file."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """The content. Raises PydanticCustomError."""
        try:
            return base64.b64decode(data.translate(None, _SPACE), validate=True)
        except binascii.Error as error:
            raise PydanticCustomError("base64_decode", "a file is written in base64") from error


Base64Content = Annotated[bytes, EncodedBytes(encoder=_Base64)]


class Body(BaseModel):
    """A request's body: an unknown field is a mistake."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SubmissionBody(Body):
    """A study file and the modules beside it that it imports, and how it should run."""

    main: str = Field(max_length=255, description="the study file's name among `files`")
    files: dict[str, Base64Content] = Field(max_length=1000, description="contents in base64 by their relative paths")
    priority: Priority = Field(0, description="above 0 for admins")
    preemptible: bool = Field(False, description="paused for studies of a higher priority, goes on later")
    devices: Whole | None = Field(
        None, ge=1, le=10_000, description="how many it has at once; null: what the study says"
    )
    after: list[Annotated[Whole, Field(ge=1, le=LARGEST_EXACT)]] = Field(
        default_factory=list, max_length=100, description="studies that must have finished first"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="as `tuner run` takes them, by their names")


class StudyBody(Body):
    """A study as `tuner.study_to_json` writes it; what is left out is as in `Study`. Nothing of it is executed."""

    name: str = Field(min_length=1, max_length=200)
    space: dict[str, Any] = Field(description="hyperparameters: domains by their type and settings, or constants")
    trial: str = Field("external", max_length=200, description="what is run: studies learn from those of the same name")
    metric: str = Field("", max_length=200)
    mode: Mode = "min"
    seed: Whole = 0
    start_from: list[dict[str, Any]] = Field(default_factory=list, max_length=10_000)
    search: str | dict[str, Any] = Field("", description="an algorithm's name, or an object with type and settings")
    scheduler: str | dict[str, Any] = Field("", description="likewise")
    budget: dict[str, Any] = Field(default_factory=dict)
    failures: dict[str, Any] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=dict)
    warm_start: dict[str, Any] | None = None


class ExternalBody(Body):
    """A study whose trials workers ask for, wherever they are."""

    study: StudyBody
    priority: Priority = Field(0, description="above 0 for admins")
    preemptible: bool = Field(False, description="paused for studies of a higher priority, goes on later")
    devices: int | None = Field(None, description="null: its trials run elsewhere")
    after: list[Annotated[Whole, Field(ge=1, le=LARGEST_EXACT)]] = Field(
        default_factory=list, max_length=100, description="studies that must have finished first"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="those of the study, concurrency and notify")


def _form(value: Any) -> str:
    return "json" if isinstance(value, dict) and {"study", "space"} & value.keys() else "file"


Submitted: TypeAdapter[SubmissionBody | ExternalBody] = TypeAdapter(
    Annotated[
        Annotated[SubmissionBody, Tag("file")] | Annotated[ExternalBody, Tag("json")],
        Discriminator(_form),
    ]
)


class ChangeBody(Body):
    """What of a study changes; what is left out stays."""

    priority: Priority | None = None
    limits: dict[str, Whole | Finite | None] = Field(
        default_factory=dict, max_length=20, description="of the budget by their names, such as trials"
    )
    concurrency: Whole | None = Field(default=None, ge=1, le=100_000, description="trials at once, at most")


class TryBody(Body):
    """A configuration to try; what it lacks is sampled."""

    config: dict[str, Any]


class AgainBody(Body):
    """A study file with changes."""

    text: str = Field(max_length=10_000_000)


class NoteBody(Body):
    """Something to write down about a run or one of its trials."""

    text: str = Field(min_length=1, max_length=10_000)
    trial: str | None = Field(None, max_length=64)


Reported = Annotated[float, Field(allow_inf_nan=True), BeforeValidator(_number)] | dict[str, Any]


class AskBody(Body):
    """Who asks for a trial."""

    worker: str = Field(pattern="^[A-Za-z0-9_.:@-]{1,64}$", description="its name, one for each that works at a time")


class ReportBody(AskBody):
    """An epoch of a trial."""

    epoch: Whole = Field(ge=1, le=10**9, description="counted from 1, one after another")
    metrics: Reported = Field(description="a number for the study's metric, or several metrics by name")
    checkpoint: str | None = Field(
        None,
        min_length=1,
        max_length=1_000,
        description="where the trial's state after this epoch is stored, for the worker that goes on",
    )


class CompleteBody(AskBody):
    """The end of a trial."""

    metrics: Reported | None = Field(None, description="of its next epoch, to report it and end the trial at once")


class FailBody(AskBody):
    """What a trial failed with."""

    error: str = Field(min_length=1, max_length=100_000)
    cause: Literal["error", "out_of_memory", "diverged", "lost"] = Field(
        "error", description="lost: its worker is gone, and another one may go on"
    )


class HandedTrial(BaseModel):
    """A trial to run now."""

    id: str
    number: int = Field(description="counted from 0")
    config: dict[str, Any]
    seed: int
    epochs: int = Field(description="to train it to, unless an answer stops it before")
    from_epoch: int = Field(description="that is done: the next one to train and report is one more")
    checkpoint: str | None = Field(None, description="of that epoch, as it was reported")
    rungs: list[int] = Field(description="epochs after which early stopping compares it")
    attempt: int = Field(description="how often it was handed out")


class Asked(BaseModel):
    """A trial; or none now, and when to ask again; or none any more, as the search is over."""

    outcome: Literal["trial", "wait", "over"]
    trial: HandedTrial | None = None
    lease_seconds: float | None = Field(None, description="within which the worker has to report or renew the trial")
    retry_after: float | None = Field(None, description="seconds")


class ToldWorker(BaseModel):
    """What to do with the trial now: go on; or leave it, as it is over (stop), or as it waits (pause).

    One that waits may be handed out again, or is with somebody else already.
    """

    answer: Literal["continue", "stop", "pause"]


class LoginBody(Body):
    """A user's name and password."""

    name: Name
    password: Password


class AcceptBody(Body):
    """The secret of a link that works once, and the password that its user chooses."""

    secret: str = Field(max_length=200)
    password: NewPassword
    name: NewName | None = Field(None, description="the first admin's")


class LinkBody(Body):
    """The secret of a link that works once."""

    secret: str = Field(max_length=200)


class PasswordBody(Body):
    """A change of your own password."""

    old: Password = Field(alias="old_password")
    new: NewPassword = Field(alias="new_password")


class UserBody(Body):
    """A user to add."""

    name: NewName
    role: Role = Role.SUBMITTER
    weight: Number = Field(1.0, gt=0, le=1000, description="their share of the devices beside others'")


class UserChangeBody(Body):
    """What of a user changes; what is left out stays."""

    role: Role | None = None
    weight: Number | None = Field(None, gt=0, le=1000)
    disabled: bool | None = None
    most_devices: Whole | None = Field(None, ge=0, le=10**6, description="of a kind at once; null for no cap")
    most_hours: Number | None = Field(None, ge=0, le=10**9, description="device-hours in 7 days; null for no cap")


class TokenBody(Body):
    """A token to create, for oneself."""

    name: str = Field("", max_length=100, description="what it is for")
    role: Role | None = Field(None, description="at most your own, which it is by default")
    days: Number | None = Field(None, gt=0, le=366, description="30 by default")


class WebhookBody(Body):
    """An address to tell of your own studies."""

    url: str = Field(min_length=1, max_length=2000, json_schema_extra={"pattern": "^https://"})
    events: list[Literal["finished", "failed", "new_best", "paused"]] | None = Field(
        None, min_length=1, max_length=20, description="all by default"
    )
    everybodys: bool = Field(False, description="of everybody's studies, for admins")


class Listed(BaseModel, Generic[T]):
    """A page of a list; `cursor` asks for the next one, and is null at the end."""

    items: list[T]
    cursor: str | None = None


class View(BaseModel):
    """An answer about an object of the service, with those of its values that others may see."""

    model_config = ConfigDict(from_attributes=True)


class TableView(View):
    """Cells as text, and how many rows are left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


class UserView(View):
    """A user."""

    name: str
    role: Role
    weight: float
    created: float
    disabled: bool
    most_devices: int | None
    most_hours: float | None


class TokenView(View):
    """A token without its secret."""

    id: int
    user: str
    name: str
    role: Role
    created: float
    expires: float
    used: float | None


class NewToken(TokenView):
    """A new token with its secret, which is shown only now."""

    secret: str


class WebhookView(View):
    """A webhook without its secret."""

    id: int
    user: str
    url: str
    events: list[str]
    everybodys: bool
    created: float


class NewWebhook(WebhookView):
    """A new webhook with the secret that signs its messages, which is shown only now."""

    secret: str


class DeliveryView(View):
    """One message to a webhook, and what became of it; times in seconds since 1970."""

    id: int
    webhook: int
    event: str
    study: int | None
    created: float
    state: Literal["waiting", "delivered", "dead"]
    tries: int
    next_try: float | None = Field(description="while it waits")
    tried: float | None
    status: int | None = Field(description="of the newest answer")
    problem: str | None


class NewUser(UserView):
    """A new user with the link by which they set their password, which works once."""

    link: str


class Advised(BaseModel):
    """What to try next; `verb` is what the page does for it, with these `limits` of the whole where it goes on."""

    text: str
    command: str | None
    verb: Literal["refine", "extend"] | None = None
    limits: dict[str, float] | None = None


class RefineBody(Body):
    """How the good region is searched next, and whether that study is submitted or only shown."""

    kind: Literal["grid", "narrowed"] = Field("grid", description="a grid, or narrower ranges for the search")
    submit: bool = False


class RefinedView(BaseModel):
    """The next study: why there, how it differs as lines of a unified diff, and the study, if it was submitted."""

    summary: str
    diff: list[str]
    study: SubmittedStudy | None


class Answered(BaseModel):
    """What became of an order to a search: it waits in the run's inbox, or was answered."""

    id: str
    outcome: str
    message: str


class FoundFacts(BaseModel):
    """What the check found of a study."""

    facts: dict[str, Any]


class Health(BaseModel):
    """Whether the server is well."""

    status: Literal["ok"] = "ok"


class Numbered(Protocol):
    """What has a number by which its list is in order."""

    @property
    def id(self) -> int: ...


S = TypeVar("S", bound=Numbered)


def page_of(found: Sequence[S], limit: int, view: Callable[[S], Any] = lambda one: one) -> Listed[Any]:
    """The first `limit` of what was found, and a cursor where there is more."""
    more = len(found) > limit
    return Listed(items=[view(one) for one in found[:limit]], cursor=str(found[limit - 1].id) if more else None)
