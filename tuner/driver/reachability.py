"""Whether a Ray cluster can be reached at an address, asked before Ray tries for minutes."""

from __future__ import annotations

import os
import re
import socket
import ssl

from tuner.errors import StudyError, setting

SECONDS = 5.0  # for a connection, and for an answer
# HOST:PORT; other forms, "auto" and "ray://…", are left to Ray
_PLACE = re.compile(r"\[?([^\[\]/]+?)\]?:(\d+)")
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")  # the answers of a server without TLS


def check_reachable(address: str) -> None:
    """Raise StudyError if nothing listens at HOST:PORT, or if only one side uses TLS."""
    place = _PLACE.fullmatch(address)
    if place is None:
        return
    try:
        with socket.create_connection((place[1], int(place[2])), SECONDS) as connection:
            theirs = _has_tls(connection)
    except (OSError, OverflowError, UnicodeError) as error:  # the latter two from an impossible port or name
        raise StudyError(
            f"{setting('--address')} needs a running Ray cluster, got {address!r}, where nothing answers "
            f"({getattr(error, 'strerror', None) or error}); start one with `ray start --head`, or leave "
            f"{setting('--address')} out"
        ) from error
    ours = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    if theirs is True and not ours:
        raise StudyError(
            f"a Ray cluster with TLS needs TLS on this side, too, got {address!r} and no RAY_USE_TLS; set "
            "RAY_USE_TLS=1 and RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT as on the cluster's nodes"
        )
    if theirs is False and ours:
        raise StudyError(
            f"RAY_USE_TLS=1 needs a Ray cluster with TLS, got {address!r}, which has none; start its nodes with the "
            "same variables, or unset RAY_USE_TLS"
        )


def _has_tls(connection: socket.socket) -> bool | None:
    """Whether the server begins a TLS session; None if its answer doesn't show it. No certificate is checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        if error.reason in _PLAIN:
            return False
        return True if "ALERT" in (error.reason or "") else None  # the server requires a client certificate first
    except OSError:
        return None
    return True
