"""What the tool is told of the cases that it has made."""

import hashlib
from typing import Any, Dict

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Dict[str, Any]) -> None:
    """Mends what the tool takes for valid and is not, before the case is sent."""
    headers = case.headers or {}
    # Where the fixed cases have no value of a pattern, they take this one.
    if headers.get("Capd-Built-Against") == "0":
        del headers["Capd-Built-Against"]
    # A key that was given with other params is refused, and the tool gives the same short ones again and again.
    key = headers.get("Idempotency-Key")
    if isinstance(key, str) and 0 < len(key) < 200 and key.isascii():
        digest = hashlib.sha256(repr((case.path, case.path_parameters, case.body)).encode()).hexdigest()
        headers["Idempotency-Key"] = f"{key}-{digest[:16]}"


@schemathesis.deserializer("application/cbor")
def cbor(context: Any, response: Any) -> Any:
    """A result as it came over the wire, which only a request that asks for it gets; these ask for anything."""
    raise ValueError("nobody asked for CBOR")
