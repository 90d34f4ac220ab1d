"""A `capd` of its own in; what `schemathesis` says of its `/openapi.json` and of every answer out.

The path of the `capd` is CAPD_BIN. `STRANGER_EXAMPLES` is how many cases each operation gets beyond the fixed ones (15), and
`STRANGER_SEED` which (1): the same seed asks the same. Arguments are passed on to `st run`.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "sdk/python/src"), str(ROOT / "sdk/python/tests")]

from capd_process import Capd  # noqa: E402
from provider import Held, serve  # noqa: E402


def get(sidecar: Capd, path: str) -> Any:
    request = urllib.request.Request(sidecar.http + path, headers={"Authorization": f"Bearer {sidecar.token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def examine(sidecar: Capd, held: Held, folder: Path) -> int:
    """Runs the tool; its exit status."""
    progress, asks, result = held.calls
    environment = {
        **os.environ,
        "STRANGER_TOKEN": sidecar.token,
        "STRANGER_SESSION": held.session,
        "STRANGER_PROGRESS": progress,
        "STRANGER_ASKS": asks,
        "STRANGER_RESULT": result,
        "STRANGER_CALLS_CURSOR": get(sidecar, "/v1/calls?limit=1")["next_cursor"],
        "STRANGER_CAPABILITIES_CURSOR": get(sidecar, "/v1/capabilities?limit=1")["next_cursor"],
        "PYTHONPATH": str(HERE),
        "SCHEMATHESIS_HOOKS": "hooks",
        "NO_PROXY": "*",
    }
    command = [
        os.environ.get("STRANGER_ST", "st"), "--config-file", str(HERE / "schemathesis.toml"), "run", f"{sidecar.http}/openapi.json",
        "--seed", os.environ.get("STRANGER_SEED", "1"), "--max-examples", os.environ.get("STRANGER_EXAMPLES", "15"), "--no-color",
        *sys.argv[1:],
    ]
    return subprocess.run(command, env=environment, cwd=folder).returncode


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        sidecar = Capd(Path(folder) / "capd").start()
        agent = None
        try:
            agent = serve(sidecar)
            held = Held(sidecar, 3)
            status = examine(sidecar, held, Path(folder))
            # It is still there, and well.
            served = get(sidecar, "/v1/self")["capabilities"]
            assert sum(id.startswith("com.acme.") for id in served) >= 4, served
            panics = [line for line in sidecar.log.splitlines() if "panic" in line]
            assert not panics, panics
            return status
        finally:
            if agent is not None:
                agent.stop()
            sidecar.kill()


if __name__ == "__main__":
    sys.exit(main())
