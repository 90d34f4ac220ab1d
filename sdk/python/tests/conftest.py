"""What the tests share: the scripted sidecar of the conformance scenarios."""

import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

from sidecar import Sidecar  # noqa: E402

Play = Callable[..., Sidecar]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Starts a sidecar that plays exchanges on `tmp_path/capd.sock`; at the end it must have nothing to complain of."""
    signals = tmp_path / "signals"
    signals.mkdir()
    started: List[Sidecar] = []

    def start(*exchanges: Dict[str, Any], **more: Any) -> Sidecar:
        sidecar = Sidecar({"sidecar": list(exchanges), **more}, str(signals), str(tmp_path / "capd.sock"))
        sidecar.start()
        started.append(sidecar)
        return sidecar

    yield start
    for sidecar in started:
        sidecar.stop()
        assert sidecar.problems == []
