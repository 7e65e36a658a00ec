"""How tuner opens a web address: without following redirects, and this machine's own ones without a proxy."""

from __future__ import annotations

import ipaddress
import urllib.request
from typing import Any
from urllib.parse import urlsplit


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """What opens addresses of this server; a redirect is an error, as it could send a token to another one."""
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(url) else []
    return urllib.request.build_opener(_NoRedirects, *proxies)


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
