"""Where a server listens, by which names it is reached, and how connections are protected."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import StudyError, shown
from tuner.service.webhooks import Reach

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class WebSettings:
    """How the service is reached.

    Any address other than the loopback one needs TLS, or a proxy with TLS: `behind_proxy`. `names` are the host names,
    besides its address, by which browsers may call the server; others are refused, so that no foreign page reaches the
    server under its own name (DNS rebinding).
    """

    host: str = "127.0.0.1"
    port: int = 8765
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")  # addresses and networks whose X-Forwarded-For is believed
    names: tuple[str, ...] = ()
    reach: Reach = field(default_factory=Reach)  # of webhooks

    def check(self) -> None:
        """Raise StudyError for settings that can't work or would expose secrets to a network."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise StudyError("TLS needs --tls-cert and --tls-key, got one of them; give both")
        for option, file in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if file is not None and not file.is_file():
                raise StudyError(f"{option} needs a file, got {str(file)!r}, which is none; check the path")
        if not self.loopback and self.tls_cert is None and not self.behind_proxy:
            raise StudyError(
                f"an address that others reach needs TLS, got --host {self.host} without it; give --tls-cert and "
                "--tls-key, or --behind-proxy where a proxy has TLS"
            )
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise StudyError(
                    f"--trust-proxy needs an address or a network such as 172.18.0.0/16, got {shown(proxy)} ({error})"
                ) from error
        if (self.anywhere or self.behind_proxy) and not self.names:
            option = "--behind-proxy" if self.behind_proxy else f"--host {self.host}"
            raise StudyError(
                f"{option} needs the names by which the server is reached, got none; "
                "give --name HOST, as browsers call it"
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def anywhere(self) -> bool:
        """Whether it listens on all addresses of this machine."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_unspecified
        except ValueError:
            return False

    @property
    def secure(self) -> bool:
        """Whether browsers use HTTPS."""
        return self.tls_cert is not None or self.behind_proxy

    @property
    def url(self) -> str:
        """Its address."""
        host = self.names[0] if self.names else f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{host}" + ("" if self.behind_proxy and self.names else f":{self.port}")

    def is_proxy(self, address: str) -> bool:
        """Whether requests of many clients come from this address."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:  # of no IP network
            return False
        return self.behind_proxy and any(found in ipaddress.ip_network(proxy) for proxy in self.proxies)

    def serves(self, host: str) -> bool:
        """Whether a Host header names this server, with any port."""
        name = host.lower()
        name = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
        return name in self._names

    @property
    def shown_names(self) -> str:
        """The names by which it can be called."""
        return ", ".join(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        own = f"[{self.host}]" if ":" in self.host else self.host
        found = (*self.names, *(() if self.anywhere else (own,)), *(_LOOPBACK_NAMES if self.loopback else ()))
        return tuple(dict.fromkeys(name.lower() for name in found))
