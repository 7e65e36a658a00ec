"""Which addresses a webhook may reach: public ones, and those that the server's admin allows."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tuner.errors import StudyError
from tuner.service.errors import Code, ServiceError

LONGEST_URL = 2000
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RefusedAddressError(Exception):
    """A host whose addresses may not be reached."""


@dataclass(frozen=True)
class Target:
    """Where a webhook's messages go."""

    host: str
    port: int
    path: str  # with its query


@dataclass(frozen=True)
class Reach:
    """What webhooks may reach besides public addresses, and the certificates (PEM) that are trusted there."""

    allowed: tuple[Network, ...] = ()
    ca: Path | None = None

    @classmethod
    def of(cls, allowed: tuple[str, ...] = (), ca: Path | None = None) -> Reach:
        """The reach from options of `tuner serve`. Raises StudyError."""
        networks = []
        for one in allowed:
            try:
                networks.append(ipaddress.ip_network(one))
            except ValueError as error:
                raise StudyError(
                    f"--webhook-allow needs an address or a network, got {one!r}; give such as 10.1.2.3 or 10.1.0.0/16"
                ) from error
        if ca is not None and not ca.is_file():
            raise StudyError(f"--webhook-ca needs a file, got {str(ca)!r}, which is none; check the path")
        return cls(tuple(networks), ca)

    def reaches(self, address: str) -> bool:
        """Whether an address is public or allowed; if it embeds an IPv4 address, that is checked, too."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if any(found in network for network in self.allowed):
            return True
        carried = _carried(found)
        if carried is not None:
            return self.reaches(str(carried))
        local = isinstance(found, ipaddress.IPv6Address) and found.is_site_local
        return found.is_global and not found.is_multicast and not found.is_reserved and not local

    def addresses(self, host: str, port: int) -> list[str]:
        """The addresses that a host has now, all of which may be reached. Raises RefusedAddressError, or OSError."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not addresses or not all(self.reaches(address) for address in addresses):
            raise RefusedAddressError("its host has an address that is not public; an admin can allow it")
        return addresses


def target_of(url: str, reach: Reach) -> Target:
    """The parts of a webhook's URL. Raises ServiceError for an address that can't get messages."""
    rule, fix = "a webhook needs an address that begins with https://", "give such as https://example.org/told"
    shown = repr(url.partition("?")[0][:60])  # the rest may be secret
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ServiceError(Code.REFUSED, rule, f"{shown}, which is none", fix) from error
    if parts.scheme != "https" or not host or not _VISIBLE.fullmatch(url) or port == 0:
        raise ServiceError(Code.REFUSED, rule, shown, fix)
    if len(url) > LONGEST_URL or len(host) > 253:
        raise ServiceError(Code.REFUSED, f"{rule} and is at most {LONGEST_URL} long", f"{len(url)} characters", fix)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ServiceError(Code.REFUSED, f"{rule}, without a user or a part behind #", "one with it", fix)
    literal = _literal(host)
    if literal is not None and not reach.reaches(literal):
        raise ServiceError(
            Code.REFUSED, "a webhook needs a public address", literal, "ask an admin for `serve --webhook-allow`"
        )
    return Target(host, port or 443, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _literal(host: str) -> str | None:
    """The address that a host is, also in a form that only the C library reads: 2130706433 and 0x7f.1 are 127.0.0.1."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return str(ipaddress.ip_address(socket.inet_aton(host.rstrip("."))))
    except OSError:
        return None


def _carried(address: Address) -> Address | None:
    """The IPv4 address inside an IPv6 one, which could otherwise bypass the check."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
