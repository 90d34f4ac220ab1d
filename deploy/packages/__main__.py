"""Builds the packages that carry capd: shipped binaries in; a deb, a wheel, npm packages and an OCI image out.

No binary is built or changed here, besides leaving out its symbols. The same binaries, tree and SOURCE_DATE_EPOCH give
the same bytes, on any machine with the same versions of Python's compressors and of TypeScript's compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import deb
import npm
import oci
import wheel
from archive import Writer
from elf import Unfit
from program import release

KINDS = {"deb": deb.build, "wheel": wheel.build, "npm": npm.build, "oci": oci.build}
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="deploy/package.sh", description="Builds the packages from the shipped binaries.")
    parser.add_argument("--capd", type=Path, default=ROOT / "target/shipped/capd", metavar="PATH")
    parser.add_argument("--capctl", type=Path, default=ROOT / "target/shipped/capctl", metavar="PATH")
    parser.add_argument("--out", type=Path, default=ROOT / "target/packages", metavar="FOLDER")
    parser.add_argument("--fast", action="store_true", help="compress little; for tests")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"which packages, by default all: {', '.join(KINDS)}")
    args = parser.parse_args()
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        parser.error(f"unknown kind {unknown[0]}; the kinds are: {', '.join(KINDS)}")
    try:
        writer = Writer(epoch(), args.fast)
        made = release(ROOT, {"capd": args.capd, "capctl": args.capctl})
        args.out.mkdir(parents=True, exist_ok=True)
        for kind in args.kinds or KINDS:
            for path, size in KINDS[kind](made, writer, args.out):
                print(f"{size:>10}  {path}", flush=True)
    except Unfit as error:
        print(f"deploy/package.sh: {error}", file=sys.stderr)
        return 1
    return 0


def epoch() -> int:
    """The time of every entry: SOURCE_DATE_EPOCH, else that of the last commit."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        last = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
        text = last.stdout.strip()
    if not text.isdigit():
        raise Unfit(f"SOURCE_DATE_EPOCH is {text!r}; set it to the seconds since 1970 that every packed file shall have")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
