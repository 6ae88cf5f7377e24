"""Builds raw Ethernet frames with any source address."""

from __future__ import annotations

import struct
from ipaddress import ip_address

IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
ICMP, UDP = 1, 17
#: Kinds of VLAN tags.
CUSTOMER_TAG, SERVICE_TAG = 0x8100, 0x88A8
#: The EtherType of LACP, and the destination that its frames have: the next bridge, which does not forward them.
SLOW_PROTOCOLS, NEXT_BRIDGE = 0x8809, "01:80:c2:00:00:02"
SOURCE_PORT = 40000


def internet_checksum(data: bytes) -> int:
    """Return the checksum of IP, ICMP and UDP (RFC 1071)."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(source: str, target: str, packet: bytes, kind: int | None = None) -> bytes:
    """Return an Ethernet frame of that EtherType, or with the one of the IP packet that it contains."""
    kind = kind or (IPV6 if packet[0] >> 4 == 6 else IPV4)
    return bytes.fromhex((target + source).replace(":", "")) + struct.pack("!H", kind) + packet


def tagged(frame: bytes, kind: int) -> bytes:
    """Return an Ethernet frame with a VLAN tag of that kind and the identifier 0, which is no VLAN but a priority."""
    return frame[:12] + struct.pack("!HH", kind, 0) + frame[12:]


def arp_reply(mac: str, address: str, target_mac: str, target: str) -> bytes:
    """Return an Ethernet frame that answers ``target``: ``address`` is at ``mac`` (RFC 826)."""
    sender, receiver = (bytes.fromhex(entry.replace(":", "")) for entry in (mac, target_mac))
    body = struct.pack("!HHBBH", 1, IPV4, 6, 4, 2) + sender + ip_address(address).packed
    return receiver + sender + struct.pack("!H", ARP) + body + receiver + ip_address(target).packed


def datagram(source: str, target: str, port: int, payload: bytes) -> bytes:
    """Return an IPv4 or IPv6 packet, depending on the addresses, with a UDP payload."""
    addresses = ip_address(source).packed + ip_address(target).packed
    length = 8 + len(payload)
    bare = struct.pack("!4H", SOURCE_PORT, port, length, 0) + payload
    summed = internet_checksum(addresses + struct.pack("!2H", UDP, length) + bare) or 0xFFFF
    segment = bare[:6] + struct.pack("!H", summed) + payload
    if len(addresses) == 32:
        return struct.pack("!IHBB", 6 << 28, length, UDP, 64) + addresses + segment
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, UDP, 0) + addresses
    return header[:10] + struct.pack("!H", internet_checksum(header)) + addresses + segment


def fragmentation_needed(source: str, target: str, peer: str, mtu: int) -> bytes:
    """Return an IPv4 packet that says that an echo reply of ``target`` to ``peer`` exceeds an MTU (RFC 1191).

    The kernel sends such replies itself, so it believes that without a socket.
    """
    echo_reply = _ipv4(target, peer, ICMP, bytes(8))
    return _ipv4(source, target, ICMP, struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + echo_reply)


def _ipv4(source: str, target: str, protocol: int, message: bytes) -> bytes:
    """Return an IPv4 packet with an ICMP message, whose checksum is filled in."""
    addresses = ip_address(source).packed + ip_address(target).packed
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, protocol, 0) + addresses
    body = message[:2] + struct.pack("!H", internet_checksum(message)) + message[4:]
    return header[:10] + struct.pack("!H", internet_checksum(header)) + addresses + body


def vxlan(vni: int, frame: bytes) -> bytes:
    """Return the VXLAN payload with a frame and a network identifier (RFC 7348)."""
    return struct.pack("!II", 1 << 27, vni << 8) + frame
