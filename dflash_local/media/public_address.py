"""Addresses of the public internet, as opposed to this machine and its neighbours."""

from __future__ import annotations

import ipaddress

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses as networks without IPv4 write them (RFC 6052)
# Tunnels, whose other end is an address inside, and ranges that older versions of Python take for global.
_OTHERS = [
    ipaddress.ip_network(network)
    for network in ("2002::/16", "2001::/23", "64:ff9b:1::/48", "fec0::/10", "100::/64", "5f00::/16", "192.0.0.0/24",
                    "192.88.99.0/24", "100.64.0.0/10", "198.18.0.0/15", "240.0.0.0/4")
]  # fmt: skip


def is_public(text: str) -> bool:
    """Whether anyone may reach this IP address: it is not private, loopback, link-local, multicast, reserved, or such
    an address in another notation."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
    if any(address.version == network.version and address in network for network in _OTHERS):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
