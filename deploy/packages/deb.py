"""Writes the Debian package: programs, unit, user, configuration; by deb(5), without Debian's tools."""

from __future__ import annotations

import email.utils
import hashlib
from pathlib import Path

from archive import Tree, Writer
from elf import Unfit
from program import Release


def build(release: Release, writer: Writer, out: Path):
    """Writes `capd_VERSION_ARCHITECTURE.deb`; yields its path and size."""
    data = _files(release, writer)
    control = _control(release, data)
    path = out / f"capd_{release.version}_{release.machine.debian}.deb"
    members = [("debian-binary", b"2.0\n")]
    for name, tree in (("control.tar.xz", control), ("data.tar.xz", data)):
        tar = writer.tar(_with_dot(tree), prefix="")
        members.append((name, writer.xz(tar)))
    path.write_bytes(writer.ar(members))
    yield path, path.stat().st_size


def _files(release: Release, writer: Writer) -> Tree:
    tree = Tree()
    for program in release.programs:
        tree.file(f"usr/bin/{program.name}", program.data, 0o755)
    for path, text in release.printed.items():
        if path.startswith("man/"):
            tree.file(f"usr/share/{path}.gz", writer.gzip(text.encode()))
        else:
            tree.file(f"usr/share/{path}", text)
    tree.file("etc/capd/capd.toml", release.read("deploy/debian/capd.toml"))
    tree.file("usr/lib/systemd/system/capd.service", release.read("deploy/systemd/capd.service"))
    tree.file("usr/lib/sysusers.d/capd.conf", release.read("deploy/systemd/capd.sysusers"))
    doc = "usr/share/doc/capd"
    tree.file(f"{doc}/copyright", copyright_text(release))
    when = email.utils.formatdate(writer.epoch)
    changes = f"capd ({release.version}) unstable; urgency=medium\n\n  * See NEWS.md.gz.\n\n -- {MAINTAINER}  {when}\n"
    tree.file(f"{doc}/changelog.gz", writer.gzip(changes.encode()))
    tree.file(f"{doc}/NEWS.md.gz", writer.gzip(release.read("CHANGELOG.md").encode()))
    tree.file(f"{doc}/operations.md.gz", writer.gzip(release.read("docs/operations.md").encode()))
    return tree


def _control(release: Release, data: Tree) -> Tree:
    tree = Tree()
    sizes = (len(entry.data) for _path, entry in data.sorted() if entry.data is not None)
    fields = {
        "Package": "capd",
        "Version": release.version,
        "Architecture": release.machine.debian,
        "Maintainer": MAINTAINER,
        "Installed-Size": str(sum(-(-size // 1024) for size in sizes)),
        "Depends": ", ".join(_depends(release)),
        "Section": "net",
        "Priority": "optional",
        "Description": "sidecar daemon that lets one agent safely call what another can do\n"
        " capd runs beside an agent. It authorizes each call, checks params and result\n"
        " against schemas, and gives every call exactly one answer, whatever crashes.\n"
        " .\n"
        " The package has the daemon capd, the command line capctl, and a service.",
    }
    tree.file("control", "".join(f"{name}: {value}\n" for name, value in fields.items()))
    tree.file("conffiles", "/etc/capd/capd.toml\n")
    sums = [f"{hashlib.md5(entry.data).hexdigest()}  {path}\n" for path, entry in data.sorted() if entry.data is not None]
    tree.file("md5sums", "".join(line for line in sums if not line.endswith("  etc/capd/capd.toml\n")))
    for script in ("postinst", "prerm", "postrm"):
        tree.file(script, release.read(f"deploy/debian/{script}"), 0o755)
    return tree


def _depends(release: Release) -> list[str]:
    """What the programs link, by Debian's names, and who makes the user."""
    needed = sorted({name for program in release.programs for name in program.elf.needed})
    major, minor = release.glibc()
    depends = {f"libc6 (>= {major}.{minor})"}
    for name in needed:
        if name == "libgcc_s.so.1":
            depends.add("libgcc-s1")
        elif not name.startswith(("libc.", "libm.", "ld-linux")):
            raise Unfit(f"a program links {name}, for which no Debian package is known; add it to deploy/packages/deb.py")
    return [*sorted(depends), "systemd | systemd-standalone-sysusers | adduser"]


def copyright_text(release: Release) -> str:
    """The licences that a package carries: both, as Cargo.toml says."""
    licence = release.read("LICENSE-MIT").strip().replace("\n\n", "\n.\n").replace("\n", "\n ")
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: capd\n\n"
        "Files: *\nCopyright: (c) The capd authors\nLicense: MIT or Apache-2.0\n\n"
        f"License: MIT\n {licence}\n\n"
        "License: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n"
    )


def _with_dot(tree: Tree) -> Tree:
    """The same entries below `.`, which dpkg expects to come first."""
    below = Tree({f"./{path}": entry for path, entry in tree.entries.items()})
    below.folder(".")
    return below


MAINTAINER = "The capd project <capd@localhost>"
