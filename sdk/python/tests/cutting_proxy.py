"""Connections in; the same connections out to a sidecar, some of which break right after a request was passed on."""

import random
import socket
import threading
from typing import List


class CuttingProxy:
    """Listens on a unix socket. Of the requests that pass, one in `one_in` loses its connection before the answer."""

    def __init__(self, path: str, sidecar: str, one_in: int, seed: int) -> None:
        self.cuts = 0
        self._sidecar = sidecar
        self._one_in = one_in
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._open: List[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        with self._lock:
            for each in [self._listener, *self._open]:
                _shut(each)
                each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            sidecar = socket.socket(socket.AF_UNIX)
            with self._lock:
                self._open += [client, sidecar]
            try:
                sidecar.connect(self._sidecar)
            except OSError:
                # The sidecar is down: the client sees its connection end.
                _shut(client)
                continue
            threading.Thread(target=self._pass, args=(client, sidecar, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(sidecar, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, are_requests: bool) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
                if are_requests and self._cuts():
                    break
        except OSError:
            pass
        _shut(source)
        _shut(target)

    def _cuts(self) -> bool:
        with self._lock:
            cut = self._random.randrange(self._one_in) == 0
            self.cuts += cut
            return cut


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
