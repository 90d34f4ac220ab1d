"""A client that is killed at any time: `keyed_worker.py SOCKET JOURNAL KEY…` calls once for each key that the journal has no outcome for.

Each outcome is one line of JSON, on disk before the next call begins.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Set

import capd


def outcome_of(client: capd.Client, key: str) -> Dict[str, Any]:
    """Asks with the same key until there is an outcome."""
    while True:
        try:
            return {"key": key, "outcome": "result", "value": client.call("com.acme.order", {"key": key}, key=key, ttl=3600, timeout=60)}
        except capd.Refused as error:
            # Nothing was executed, and the cause may pass: a sidecar that is away.
            if error.retry == "no":
                return {"key": key, "outcome": "refused", "code": error.code}
        except capd.Pending:
            pass
        except capd.OutcomeUnknown as error:
            # Without a status the sidecar itself was lost, and knows more once it is back.
            if error.status is not None:
                return {"key": key, "outcome": "unknown", "code": error.code}
        except capd.Failed as error:
            return {"key": key, "outcome": "failed", "code": error.code}


def recorded(journal: Path) -> Set[str]:
    """The keys with an outcome. A line that was cut is none."""
    keys = set()
    for line in journal.read_text().splitlines() if journal.exists() else []:
        try:
            keys.add(json.loads(line)["key"])
        except ValueError:
            pass
    return keys


def main(socket: str, journal: Path, keys: "list[str]") -> None:
    done = recorded(journal)
    with capd.Client(socket, wait=60) as client, open(journal, "a") as file:
        for key in keys:
            if key not in done:
                file.write("\n" + json.dumps(outcome_of(client, key)) + "\n")
                file.flush()
                os.fsync(file.fileno())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
