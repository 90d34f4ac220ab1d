"""Generated clients in; that each is served by a provider which keeps to its declaration, and refused before anything is sent by one
which has drifted, out.

`run.py LANGUAGE=COMMAND…`: each command runs the client of that language, beside a sidecar whose socket is CAPD_SOCKET. The path of
the `capd` is CAPD_BIN.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sdk/python/src"), str(ROOT / "sdk/python/tests")]

from capd_process import PATIENCE_SECONDS, Capd  # noqa: E402
from sides import until  # noqa: E402

import capd  # noqa: E402

NAME = "com.acme.translate"
TEXT: Dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DECLARED = {"input_schema": {**TEXT, "additionalProperties": False}, "output_schema": TEXT}
#: Under the version that the clients know: it asks for more than they send, or returns what they do not expect.
DRIFTED = {
    "asks for more": {**DECLARED, "input_schema": {
        "type": "object", "properties": {"text": {"type": "string"}, "to": {"type": "string"}}, "required": ["text", "to"], "additionalProperties": False}},
    "returns something else": {**DECLARED, "output_schema": {"type": "object", "properties": {"text": {"type": ["string", "null"]}}}},
}


class Provider:
    """An agent that serves the capability, and counts what arrives."""

    def __init__(self, sidecar: Capd, caller: Capd, schemas: Dict[str, Any]) -> None:
        self.arrived: List[Any] = []
        self._agent = capd.Agent(sidecar.socket)

        def translate(params: Any) -> Any:
            self.arrived.append(params)
            return {"text": params["text"].upper()}

        self._agent.add(NAME, translate, version="1.0.0", idempotent=True, **schemas)
        self._agent.start()
        assert self._agent.wait_ready(PATIENCE_SECONDS)
        with capd.Client(caller.socket) as client:
            until(lambda: self._is_known(client, schemas))

    @staticmethod
    def _is_known(client: capd.Client, schemas: Dict[str, Any]) -> bool:
        try:
            found = client.describe(NAME)
        except capd.Refused:
            return False
        return [found[side].get("schema") for side in ("input", "output")] == list(schemas.values())

    def stop(self) -> None:
        self._agent.stop()


def run(command: str, caller: Capd) -> Any:
    environment = {**os.environ, "CAPD_SOCKET": caller.socket}
    done = subprocess.run(shlex.split(command), env=environment, stdout=subprocess.PIPE, timeout=2 * PATIENCE_SECONDS, check=True)
    return json.loads(done.stdout)


def taken(sidecar: Capd) -> int:
    """How many calls its access log has."""
    return sum("access: call" in line and NAME in line for line in sidecar.log.splitlines())


def check(commands: Dict[str, str], far: Capd, near: Capd) -> None:
    provider = Provider(far, near, DECLARED)
    for language, command in commands.items():
        before = len(provider.arrived)
        said = run(command, near)
        assert said == {"outcome": "result", "value": {"text": "HELLO"}}, (language, said)
        assert len(provider.arrived) == before + 1, language
    provider.stop()
    until(lambda: taken(far) == len(commands))
    for how, schemas in DRIFTED.items():
        provider = Provider(far, near, schemas)
        for language, command in commands.items():
            said = run(command, near)
            assert said == {"outcome": "refused", "code": 4902}, (language, how, said)
            print(f"{language}: a provider that {how} is refused with 4902")
        # A call that none of this is about arrives, and is the only one that does.
        with capd.Client(near.socket) as client:
            client.call(NAME, {"text": "a", "to": "b"} if how == "asks for more" else {"text": "a"})
        assert len(provider.arrived) == 1, (how, provider.arrived)
        provider.stop()
    until(lambda: taken(far) == len(commands) + len(DRIFTED))


def main(commands: Dict[str, str]) -> None:
    assert commands, "no language to check"
    with tempfile.TemporaryDirectory() as folder:
        far = Capd(Path(folder) / "far").start()
        near = Capd(Path(folder) / "near", (far,))
        try:
            near.start()
            check(commands, far, near)
        finally:
            near.kill()
            far.kill()


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
