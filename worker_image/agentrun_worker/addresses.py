"""Which network addresses a tool may reach: judged on the resolved address at connect time, never on a URL's text."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google Cloud
        "168.63.129.16",  # Azure
        "100.100.100.200",  # Alibaba Cloud
        "192.0.0.192",  # Oracle Cloud
    )
)
"""Where clouds hand out credentials; refused whatever a tool allows."""
_TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
"""NAT64: the last four bytes are an IPv4 address (RFC 6052, RFC 8215)."""


def refuse_address(text: str, *, allow_private: bool) -> str | None:
    """Return why an address may not be connected to, or None when it may.

    Link-local, metadata, multicast, reserved and unspecified addresses never; loopback and private ones only where the
    tool says ``allowPrivateAddresses``. IPv4 addresses inside IPv6 ones are judged as what they lead to.
    """
    address = _innermost(ipaddress.ip_address(text.split("%", 1)[0]))
    if address in _METADATA:
        return f"{address} is a metadata service"
    if address.is_link_local:
        return f"{address} is link-local"
    if address.is_multicast or address.is_unspecified or (address.is_reserved and not address.is_loopback):
        return f"{address} is no address of a service"
    if address.is_global or allow_private:
        return None
    return f"{address} is private: the tool must say http.allowPrivateAddresses: true"


def _innermost(address: _Address) -> _Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and any(address in network for network in _TRANSLATED):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address
