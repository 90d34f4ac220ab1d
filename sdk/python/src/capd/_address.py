"""Finds the sidecar: an argument, the environment, or the default place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional
from urllib.parse import urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Address:
    """Where a sidecar listens: a unix socket, or a port on loopback with a token."""

    path: Optional[str] = None
    host: str = "localhost"
    port: int = 0
    token: Optional[str] = None

    @property
    def authority(self) -> str:
        """The header `Host`."""
        if self.path is not None:
            return "localhost"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.path if self.path is not None else f"http://{self.authority}"


def find(address: Optional[str] = None, token: Optional[str] = None, environment: Optional[Mapping[str, str]] = None) -> Address:
    """The sidecar's address.

    The first of these wins: `address`, a path or `http://127.0.0.1:PORT`; `CAPD_SOCKET`; `CAPD_HTTP`; the socket where capd
    puts it by itself. A token is for HTTP on TCP: `token`, else `CAPD_TOKEN`, else the file that `CAPD_TOKEN_FILE` names.

    Raises `ValueError` for an address that is no place of a sidecar.
    """
    values = os.environ if environment is None else environment
    if address is None:
        address = values.get("CAPD_SOCKET") or values.get("CAPD_HTTP") or _default_socket(values)
    if "://" not in address:
        return Address(path=address)
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return Address(path=parts.path)
    if parts.scheme != "http" or parts.hostname is None or parts.port is None or parts.path not in ("", "/"):
        raise ValueError(f"{address!r} is no address of a sidecar: give a socket's path, or http://127.0.0.1:PORT")
    if parts.hostname not in _LOOPBACK:
        raise ValueError(f"{address!r} is not on this machine: an agent speaks to the sidecar beside it, on 127.0.0.1, ::1 or localhost")
    return Address(host=parts.hostname, port=parts.port, token=token or _token(values))


def _token(values: Mapping[str, str]) -> Optional[str]:
    if values.get("CAPD_TOKEN"):
        return values["CAPD_TOKEN"]
    file = values.get("CAPD_TOKEN_FILE")
    return Path(file).read_text(encoding="utf-8").strip() if file else None


def _default_socket(values: Mapping[str, str]) -> str:
    state = values.get("XDG_STATE_HOME")
    base = Path(state) if state else Path(values.get("HOME") or Path.home()) / ".local/state"
    return str(base / "capd/capd.sock")
