"""Webhooks: addresses that get messages about studies, and the messages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tuner.service.database.webhooks import EVENTS, Delivery
from tuner.service.model import place_of
from tuner.service.web.context import Shown, Submitter
from tuner.service.web.routes.bodies import (
    Cursor,
    DeliveryView,
    Id,
    Listed,
    NewWebhook,
    Size,
    WebhookBody,
    WebhookView,
    page_of,
)

router = APIRouter(tags=["webhooks"])


@router.get("/webhooks")
def list_webhooks(
    web: Shown,
    user: Submitter,
    limit: Size,
    everybodys: Annotated[bool, Query(description="for admins")] = False,
    cursor: Cursor = None,
) -> Listed[WebhookView]:
    """Your own webhooks, without their secrets."""
    found = web.webhooks.all(user, everybodys=everybodys, after=place_of(cursor), limit=limit + 1)
    return page_of(found, limit, WebhookView.model_validate)


@router.post("/webhooks", status_code=201)
def add_webhook(body: WebhookBody, web: Shown, user: Submitter) -> NewWebhook:
    """A new webhook of your own; its secret is shown this once."""
    hook, secret = web.webhooks.add(user, body.url, body.events or EVENTS, everybodys=body.everybodys)
    return NewWebhook(**vars(WebhookView.model_validate(hook)), secret=secret)


@router.get("/webhooks/{webhook}")
def show_webhook(webhook: Id, web: Shown, user: Submitter) -> WebhookView:
    """A webhook of your own; of anybody for admins."""
    return WebhookView.model_validate(web.webhooks.get(user, webhook))


@router.delete("/webhooks/{webhook}", status_code=204)
def remove_webhook(webhook: Id, web: Shown, user: Submitter) -> None:
    """Delete a webhook and its messages."""
    web.webhooks.remove(user, webhook)


@router.post("/webhooks/{webhook}:test")
def test_webhook(webhook: Id, web: Shown, user: Submitter) -> DeliveryView:
    """Send a message named test at once, one time; answers what became of it."""
    return _delivery(web.webhooks.test(user, webhook))


@router.get("/webhooks/{webhook}/deliveries")
def list_deliveries(
    webhook: Id, web: Shown, user: Submitter, limit: Size, cursor: Cursor = None
) -> Listed[DeliveryView]:
    """What was sent to a webhook in the last 30 days and what waits, the newest first."""
    before = place_of(cursor) or None
    return page_of(web.webhooks.deliveries(user, webhook, before=before, limit=limit + 1), limit, _delivery)


def _delivery(found: Delivery) -> DeliveryView:
    view = DeliveryView.model_validate(found)
    return view if found.state == "waiting" else view.model_copy(update={"next_try": None})
