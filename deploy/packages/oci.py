"""Writes the container image as an OCI layout: both programs, the shared libraries that they need, and nothing else.

Needs no engine. The libraries are those of the machine that packs, of the same processor, with their licences.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path

import elf
from archive import Tree, Writer
from elf import Unfit
from program import Release

# Nobody's number by convention: that of distroless images.
USER = 65532
STATE = "var/lib/capd"
SOCKET = "run/capd"
# Other users of a volume may write its top folder. capd makes `private` for itself alone, which puts them out of reach.
VARIABLES = {
    "PATH": "/usr/bin",
    "HOME": f"/{STATE}",
    "CAPD_AGENT__DIR": f"/{STATE}/private/state",
    "CAPD_LISTEN__UNIX": f"/{SOCKET}/capd.sock",
    "CAPD_SOCKET": f"/{SOCKET}/capd.sock",
}


def build(release: Release, writer: Writer, out: Path):
    """Writes the folder `capd-VERSION-oci-ARCHITECTURE`, and the same as a tar; yields the tar's path and size."""
    folder = out / f"capd-{release.version}-oci-{release.machine.oci}"
    layout = _layout(release, writer)
    shutil.rmtree(folder, ignore_errors=True)
    for path, entry in layout.sorted():
        if entry.data is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(entry.data)
    archive = folder.with_name(f"{folder.name}.tar")
    archive.write_bytes(writer.tar(layout))
    yield archive, archive.stat().st_size


def _layout(release: Release, writer: Writer) -> Tree:
    layout = Tree()

    def blob(kind: str, data: bytes) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        layout.file(f"blobs/sha256/{digest}", data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    # The libraries change seldom and are a layer of their own, which a new version of capd leaves where it is.
    tars = [writer.tar(_base(release)), writer.tar(_programs(release))]
    layers = [blob("layer.v1.tar+gzip", writer.gzip(tar)) for tar in tars]
    config = blob("config.v1+json", _json(_config(release, writer, tars)))
    manifest = blob("manifest.v1+json", _json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": layers,
    }))
    manifest["annotations"] = {"org.opencontainers.image.ref.name": release.version}
    manifest["platform"] = {"architecture": release.machine.oci, "os": "linux"}
    layout.file("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}
    layout.file("index.json", _json(index))
    return layout


def _config(release: Release, writer: Writer, tars: list[bytes]) -> dict:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(writer.epoch))
    return {
        "created": when,
        "architecture": release.machine.oci,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": [f"{name}={value}" for name, value in VARIABLES.items()],
            "Entrypoint": ["/usr/bin/capd"],
            "Cmd": ["run"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Volumes": {f"/{STATE}": {}, f"/{SOCKET}": {}},
            "Labels": {
                "org.opencontainers.image.title": "capd",
                "org.opencontainers.image.description": "A sidecar daemon that lets one agent safely call what another agent can do",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
        "history": [
            {"created": when, "created_by": "deploy/package.sh: shared libraries and folders"},
            {"created": when, "created_by": "deploy/package.sh: capd and capctl"},
        ],
    }


def _base(release: Release) -> Tree:
    """The root of the file system without the programs."""
    tree = Tree()
    tree.file("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\ncapd:x:{USER}:{USER}:capd:/{STATE}:/sbin/nologin\n")
    tree.file("etc/group", f"root:x:0:\ncapd:x:{USER}:\n")
    tree.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    for path in (STATE, SOCKET):
        tree.folder(path, 0o700, USER)
    tree.folder("etc/capd")
    # Runtimes put these where the root is read-only.
    for path in ("dev", "proc", "sys"):
        tree.folder(path)
    tree.folder("tmp", 0o1777)
    loaders = {program.elf.loader for program in release.programs}
    for loader in sorted(loader for loader in loaders if loader is not None):
        tree.file(loader.lstrip("/"), Path(loader).read_bytes(), 0o755)
    for name, path in sorted(_libraries(release).items()):
        # Where the loader looks without a cache.
        tree.file(f"lib/{release.machine.triplet}/{name}", path.read_bytes(), 0o755)
    for package, libraries in _LICENCES.items():
        licence = Path(f"/usr/share/doc/{package}/copyright")
        if not libraries.isdisjoint(_libraries(release)):
            if not licence.is_file():
                raise Unfit(f"{licence} is missing, and the image may not carry {package} without it; pack on Debian")
            tree.file(f"usr/share/doc/{package}/copyright", licence.read_bytes())
    return tree


def _programs(release: Release) -> Tree:
    tree = Tree()
    for program in release.programs:
        tree.file(f"usr/bin/{program.name}", program.data, 0o755)
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        tree.file(f"usr/share/doc/capd/{name}", release.read(name))
    return tree


def _libraries(release: Release) -> dict[str, Path]:
    """The shared libraries that the programs need, and those that these need, by name."""
    found: dict[str, Path] = {}
    loaders = {Path(program.elf.loader).name for program in release.programs if program.elf.loader is not None}
    wanted = [name for program in release.programs for name in program.elf.needed]
    while wanted:
        name = wanted.pop()
        if name in found or name in loaders:
            continue
        folders = [Path(f"{folder}/{release.machine.triplet}") for folder in ("/lib", "/usr/lib")]
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            raise Unfit(f"{name} is in none of {', '.join(map(str, folders))}; pack on Debian, for the same processor")
        library = elf.read(path)
        if library.machine != release.machine:
            raise Unfit(f"{path} is for {library.machine.python}, and capd for {release.machine.python}")
        found[name] = path
        wanted.extend(library.needed)
    return found


def _json(value: dict) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


_LICENCES = {"libc6": {"libc.so.6", "libm.so.6"}, "libgcc-s1": {"libgcc_s.so.1"}}
