"""Serves packed npm packages as a registry on loopback: `registry.py FOLDER COMMAND…` runs the command with `npm_config_registry` set.

Ends with the command, and with its exit code.
"""

import base64
import hashlib
import http.server
import json
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path


class Registry(http.server.ThreadingHTTPServer):
    """The packages of a folder, each in its one version."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.files: dict[str, bytes] = {}
        for path in folder.glob("*.tgz"):
            data = path.read_bytes()
            with tarfile.open(path) as tar:
                manifest = json.load(tar.extractfile("package/package.json"))
            manifest["dist"] = {
                "tarball": self.url + path.name,
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode(),
            }
            version = manifest["version"]
            page = {"name": manifest["name"], "dist-tags": {"latest": version}, "versions": {version: manifest}}
            self.files[f"/{path.name}"] = data
            self.files[f"/{manifest['name']}"] = json.dumps(page).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with a file of the registry, or with 404."""

    def do_GET(self) -> None:
        data = self.server.files.get(self.path)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_words: object) -> None:
        pass


def main() -> int:
    with Registry(Path(sys.argv[1])) as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        code = subprocess.run(sys.argv[2:], env={**os.environ, "npm_config_registry": registry.url}).returncode
        registry.shutdown()
        return code


if __name__ == "__main__":
    sys.exit(main())
