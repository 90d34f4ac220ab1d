"""A configuration in, a running `capd` out: its binary is the environment's CAPD_BIN."""

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

PATIENCE_SECONDS = 30.0


class Capd:
    """One sidecar in a folder of its own. `kill` and `start` are a crash and a restart with the same identity and state."""

    def __init__(self, folder: Path, peers: "Tuple[Capd, ...]" = ()) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.peers = peers
        self.announcement: Dict[str, Any] = {}
        self.process: Optional["subprocess.Popen[str]"] = None

    @property
    def socket(self) -> str:
        return str(self.folder / "state/capd.sock")

    @property
    def http(self) -> str:
        return f"http://{self.announcement['local_tcp']}"

    @property
    def token(self) -> str:
        return (self.folder / "state/token").read_text().strip()

    @property
    def log(self) -> str:
        return (self.folder / "capd.log").read_text()

    def start(self) -> "Capd":
        """Starts it and waits until it listens."""
        config = self.folder / "capd.toml"
        config.write_text(self._config())
        command = [os.environ["CAPD_BIN"], "run", "--announce", "--stop-with-stdin", "--config", str(config)]
        if os.geteuid() == 0:
            command += ["--set", "process.allow_root=on"]
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        with open(self.folder / "capd.log", "a") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, text=True)
        assert self.process.stdout is not None
        line: List[str] = []
        reading = threading.Thread(target=lambda: line.append(self.process.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reading.start()
        reading.join(PATIENCE_SECONDS)
        if not line or not line[0]:
            self.kill()
            raise AssertionError(f"capd announced nothing\n{self.log}")
        self.announcement = json.loads(line[0])
        return self

    def kill(self) -> None:
        """Ends it as if the machine had lost power."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self.process = None

    def _config(self) -> str:
        # A restart listens where it listened before.
        quic = self.announcement.get("quic", "127.0.0.1:0")
        local_tcp = self.announcement.get("local_tcp", "127.0.0.1:0")
        lines = ["[agent]", f'dir = "{self.folder}/state"', "[listen]", f'quic = "{quic}"', f'local_tcp = "{local_tcp}"',
                 "[peer]", 'admit = "any"', 'serves = ["*"]']
        for peer in self.peers:
            lines += ["[[peers]]", f'did = "{peer.announcement["did"]}"', f'addresses = ["quic://{peer.announcement["quic"]}"]', 'serves = ["*"]']
        lines += ["[[allow]]", 'callers = ["*"]', 'capabilities = ["*"]', 'permissions = ["*"]', ""]
        return "\n".join(lines)
