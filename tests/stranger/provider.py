"""A running `capd` in; what it serves while strangers examine its API out: three typed capabilities, and calls that wait for an answer."""

import dataclasses
import http.client
import json
import threading
from typing import Annotated, Any, Dict, List, Literal, Optional

from capd_process import PATIENCE_SECONDS, Capd

import capd


@dataclasses.dataclass
class Line:
    """A line of an order."""

    item: str
    # An integer without bounds would allow numbers that the wire cannot hold.
    count: Annotated[int, capd.Keywords(minimum=0, maximum=1000)]
    price: Optional[float] = None


def serve(sidecar: Capd) -> capd.Agent:
    """An agent with three typed capabilities."""
    agent = capd.Agent(sidecar.socket)

    @agent.capability("com.acme.translate", version="1.2.0", idempotent=True)
    def translate(text: str, to: Literal["de", "fr"] = "de") -> Dict[str, str]:
        """Translates a text."""
        return {"text": f"{text} ({to})"}

    @agent.capability("com.acme.order")
    def order(lines: List[Line], note: Optional[str] = None) -> int:
        """Orders, and says how many pieces."""
        return sum(line.count for line in lines)

    text = {"type": "string", "maxLength": 1000}
    agent.add("com.acme.upper", str.upper, idempotent=True, input_schema=text, output_schema={"type": "string"})
    agent.start()
    assert agent.wait_ready(PATIENCE_SECONDS)
    return agent


class Held:
    """A stream of `/v1/provide` whose first calls wait, so that there are calls to tell something of. Later calls are answered at once."""

    NAME = "com.acme.held"

    def __init__(self, sidecar: Capd, calls: int) -> None:
        self._sidecar = sidecar
        self._stream = self._ask("POST", "/v1/provide", {"capabilities": [{"name": self.NAME, "inputSchema": {"type": "null"}}]})
        self.session = self._event("ready")["session"]
        for _ in range(calls):
            answer = self._ask("POST", f"/v1/call/{self.NAME}?timeout=30m", None, {"Prefer": "respond-async"})
            assert answer.status == 202, answer.read()
            answer.read()
        self.calls: List[str] = [self._event("call")["id"] for _ in range(calls)]
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        try:
            while True:
                call = self._event("call")["id"]
                self._ask("POST", f"/v1/provide/{self.session}/calls/{call}/result", {"result": None}).read()
        except (OSError, ValueError, http.client.HTTPException):
            # The sidecar has ended.
            pass

    def _event(self, name: str) -> Any:
        found = ""
        while line := self._stream.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "event":
                found = value
            elif key == "data" and found == name:
                return json.loads(value)
        raise ValueError("the stream has ended")

    def _ask(self, method: str, path: str, body: Any, fields: Optional[Dict[str, str]] = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._sidecar.announcement["local_tcp"], timeout=600)
        fields = {**(fields or {}), "Authorization": f"Bearer {self._sidecar.token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), fields)
        return connection.getresponse()
