"""Writes fleet.json: the records of a fleet, made without capd's code. Needs the `cryptography` package.

python3 tests/vectors/fleet.py > tests/vectors/fleet.json
"""

import hashlib
import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def head(major, n):
    for info, size, most in ((24, 1, 1 << 8), (25, 2, 1 << 16), (26, 4, 1 << 32), (27, 8, 1 << 64)):
        if n < 24:
            return bytes([major << 5 | n])
        if n < most:
            return bytes([major << 5 | info]) + n.to_bytes(size, "big")
    raise ValueError(n)


def cbor(value):
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    pairs = sorted((cbor(key), cbor(item)) for key, item in value.items())
    return head(5, len(pairs)) + b"".join(key + item for key, item in pairs)


def base58(data):
    n, text = int.from_bytes(data, "big"), ""
    while n:
        n, digit = divmod(n, 58)
        text = BASE58[digit] + text
    return text


def party(seed):
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return key, public, "z" + base58(b"\xed\x01" + public)


def signed(key, domain, body):
    return key.sign(domain.encode() + b"\0" + body)


authority, authority_key, _ = party(bytes([1] * 32))
agent, agent_key, agent_text = party(bytes([2] * 32))
cell, name, now = "prod-eu", "org.example.billing.invoice", 1_800_000_000_000
journal = bytes(range(16))
day = 24 * 60 * 60 * 1000

member_body = cbor({0: 1, 1: agent_key, 2: cell, 3: ["org.example.billing.*"], 4: now, 5: now + 90 * day, 6: 3})
membership = cbor([member_body, signed(authority, "capd-member-v1", member_body)])

revocation_body = cbor({0: 1, 1: agent_key, 2: cell, 3: 4, 4: now + 5})
revocation = cbor([revocation_body, signed(authority, "capd-revocation-v1", revocation_body)])


def registration(zone):
    body = {
        0: 1, 1: agent_key, 2: cell, 3: name, 4: 7, 5: 300,
        6: [[0, "billing-0.example.org", 7001], [1, "2001:db8::7", 7002]],
        7: [["1.4.0", bytes([9] * 32), 1], ["2.0.0-rc.1", bytes([8] * 32), 6]],
        8: now, 9: now + day, 10: journal, 12: 1,
    }
    if zone:
        body[11] = zone
    body = cbor(body)
    return cbor([body, signed(agent, "capd-registration-v1", body), membership])


root = f"/capd/1/{cell}/"
shard = hashlib.sha256(agent_key).hexdigest()[0]
print(json.dumps({
    "note": "Records of a fleet, made by fleet.py; bytes in hexadecimal",
    "authority_seed": "01" * 32, "agent_seed": "02" * 32, "now_ms": now, "cell": cell, "name": name,
    "agent": agent_text,
    "fence_key": f"{root}i/{agent_text}",
    "registration_key": f"{root}n/{name}/{shard}/{agent_text}",
    "revocation_key": f"{root}d/{agent_text}",
    "fence": ((7).to_bytes(8, "big") + journal).hex(),
    "membership": membership.hex(),
    "revocation": revocation.hex(),
    "registration": registration("eu-1a").hex(),
    "registration_without_zone": registration(None).hex(),
}, indent=1))
