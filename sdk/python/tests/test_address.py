"""The sidecar is found where the argument, the environment, or the default says."""

from pathlib import Path
from typing import Dict, Optional

import pytest

from capd._address import Address, find


@pytest.mark.parametrize(("address", "environment", "expected"), [
    ("/a.sock", {"CAPD_SOCKET": "/b.sock"}, Address(path="/a.sock")),
    ("unix:///a.sock", {}, Address(path="/a.sock")),
    (None, {"CAPD_SOCKET": "/b.sock", "CAPD_HTTP": "http://127.0.0.1:1"}, Address(path="/b.sock")),
    (None, {"CAPD_HTTP": "http://127.0.0.1:7003", "CAPD_TOKEN": "t"}, Address(host="127.0.0.1", port=7003, token="t")),
    (None, {"CAPD_HTTP": "http://[::1]:7003/"}, Address(host="::1", port=7003)),
    (None, {"XDG_STATE_HOME": "/state", "HOME": "/home/a"}, Address(path="/state/capd/capd.sock")),
    (None, {"XDG_STATE_HOME": "", "HOME": "/home/a"}, Address(path="/home/a/.local/state/capd/capd.sock")),
])
def test_the_first_place_wins(address: Optional[str], environment: Dict[str, str], expected: Address) -> None:
    assert find(address, None, environment) == expected


def test_the_token_comes_from_the_argument_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    environment = {"CAPD_HTTP": "http://localhost:1", "CAPD_TOKEN_FILE": str(file)}
    assert find(None, None, environment).token == "from-file"
    assert find(None, None, {**environment, "CAPD_TOKEN": "from-env"}).token == "from-env"
    assert find(None, "argument", {**environment, "CAPD_TOKEN": "from-env"}).token == "argument"


@pytest.mark.parametrize("address", ["http://example.com:80", "https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/v1", "tcp://127.0.0.1:1"])
def test_what_is_no_place_of_a_sidecar_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="127.0.0.1"):
        find(address)


def test_an_address_with_ipv6_has_brackets() -> None:
    assert Address(host="::1", port=7).authority == "[::1]:7" and str(Address(path="/s")) == "/s"
