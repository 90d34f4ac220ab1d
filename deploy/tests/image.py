"""Runs an unpacked image as a runtime does: `image.py BUNDLE`, the folder that `umoci unpack` made. Needs root.

Namespaces of its own, a read-only root, no capabilities, the user and environment of the image, and the volumes of
deploy/kubernetes. An agent outside serves a capability over the shared socket; capctl of the image calls it.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAIT_SECONDS_MAX = 60
USER = 65532
DEVICES = ("null", "zero", "full", "random", "urandom")
# $1 is the root, $2 state, $3 sockets, $4 configuration; the rest is the program, which becomes the first process.
ENTER = """
set -e
root=$1
mount --bind "$root" "$root"
mount --bind "$2" "$root/var/lib/capd"
mount --bind "$3" "$root/run/capd"
mount --bind "$4" "$root/etc/capd"
mount -o remount,bind,ro "$root/etc/capd"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in %s; do : >"$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
mount -o remount,bind,ro "$root"
ip link set lo up
shift 4
exec "$@"
""" % " ".join(DEVICES)


def main() -> None:
    bundle = Path(sys.argv[1]).resolve()
    process = json.loads((bundle / "config.json").read_text())["process"]
    assert process["user"] == {"uid": USER, "gid": USER}, process["user"]
    assert process["args"] == ["/usr/bin/capd", "run"], process["args"]
    variables = [text for text in process["env"] if not text.startswith("TERM=")]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        work.chmod(0o755)
        # As Kubernetes mounts volumes for fsGroup: root's, writable for the group, and for all where memory is the medium.
        for folder, mode in (("state", 0o2775), ("sockets", 0o2777), ("config", 0o755)):
            (work / folder).mkdir()
            os.chown(work / folder, 0, USER)
            (work / folder).chmod(mode)
        (work / "config/capd.toml").write_text('[listen]\nquic = "127.0.0.1:0"\nhealth = "0.0.0.0:9464"\n[log]\nlevel = "warn"\n')
        run(bundle / "rootfs", work, variables)


def confined(root: Path, variables: list[str], program: list[str]) -> list[str]:
    """The words that start a program in `root` as the image's user, without capabilities and without ways to get some."""
    kept = "-all,+sys_chroot,+setuid,+setgid"  # only until the user is another
    return [
        "setpriv", "--no-new-privs", f"--bounding-set={kept}", "env", "-i", *variables,
        "/usr/sbin/chroot", f"--userspec={USER}:{USER}", f"--groups={USER}", str(root), *program,
    ]


def run(root: Path, work: Path, variables: list[str]) -> None:
    volumes = [str(work / name) for name in ("state", "sockets", "config")]
    program = confined(root, variables, ["/usr/bin/capd", "run", "--announce", "--config", "/etc/capd/capd.toml"])
    namespaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private"]
    words = ["unshare", *namespaces, "sh", "-c", ENTER, "sh", str(root), *volumes, *program]
    runtime = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    provider = None
    try:
        line = runtime.stdout.readline()
        assert line, "capd did not start in the image"
        assert json.loads(line)["socket"] == "/run/capd/capd.sock", line
        pid = int(subprocess.run(["pgrep", "-P", str(runtime.pid)], check=True, text=True, stdout=subprocess.PIPE).stdout)
        check_confined(pid)

        # The agent of another container of the pod: the same user, and only the folder of the socket in common.
        agent = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", str(root / "usr/bin/capctl")]
        socket = str(work / "sockets/capd.sock")
        serve = ["--socket", socket, "serve", "--idempotent", "com.example.length:1.0.0", "--", "wc", "-c"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CAPD_")}
        provider = subprocess.Popen([*agent, *serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

        def capctl(*words: str) -> subprocess.CompletedProcess:
            inside = ["nsenter", "-t", str(pid), "-m", "-p", "-n", "-i", "-u", *confined(root, variables, ["/usr/bin/capctl", *words])]
            return subprocess.run(inside, text=True, capture_output=True)

        end = time.monotonic() + WAIT_SECONDS_MAX
        while (called := capctl("call", "com.example.length", "--params", '"four"')).returncode != 0:
            assert time.monotonic() < end, called.stderr
            time.sleep(0.1)
        assert called.stdout == "6\n", called.stdout
        for path in ("livez", "readyz", "metrics"):
            assert probe(pid, path) == 200, f"/{path} of the image"

        key = work / "state/private/state/identity.key"
        assert (key.stat().st_mode & 0o777, key.stat().st_uid) == (0o600, USER), key.stat()
        os.kill(pid, signal.SIGTERM)
        code = runtime.wait(WAIT_SECONDS_MAX)
        assert code == 0, f"capd in the image ended with {code} after SIGTERM"
        print(f"a call through the image: read-only root, user {USER}, no capabilities; SIGTERM ended it with 0")
    finally:
        for process in (provider, runtime):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def probe(pid: int, path: str) -> int:
    """The status of what a probe of deploy/kubernetes asks, from within the network of the sidecar."""
    ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/{path}', timeout=5).status)"
    inside = ["nsenter", "-t", str(pid), "-n", sys.executable, "-c", ask]
    return int(subprocess.run(inside, check=True, text=True, stdout=subprocess.PIPE).stdout)


def check_confined(pid: int) -> None:
    """What the kernel says of the running sidecar."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    assert status["Uid"].split() == [str(USER)] * 4, status["Uid"]
    assert int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0, status["CapEff"]
    assert status["NoNewPrivs"] == "1"
    wanted = {"/": "ro", "/etc/capd": "ro", "/var/lib/capd": "rw", "/run/capd": "rw"}
    # Places as the process sees them, from its root on.
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    found = {line[4]: line[5].split(",")[0] for line in lines}
    assert {path: found.get(path) for path in wanted} == wanted, found


if __name__ == "__main__":
    main()
