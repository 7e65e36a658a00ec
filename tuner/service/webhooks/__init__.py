"""Webhooks: signed messages about studies by HTTPS.

addresses  which addresses may be reached; checked at each connection
posting    one signed message to one address
sender     tries what waits, and again later
webhooks   what the routes call: webhooks added, shown, tried and removed, each by who may
"""

from tuner.service.webhooks.addresses import Reach
from tuner.service.webhooks.sender import Sender
from tuner.service.webhooks.webhooks import Webhooks

__all__ = ["Reach", "Sender", "Webhooks"]
