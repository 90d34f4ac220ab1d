#!/usr/bin/env bash
# Builds the packages from the shipped binaries: deb, Python wheel, npm packages and OCI image. See deploy/packages/.
#
#   deploy/package.sh                                     all of them, from what deploy/build.sh left, into target/packages
#   deploy/package.sh --capd PATH --capctl PATH deb oci   two of them, from other binaries
#
# Needs Python 3.11 or newer and binutils; npm packages also need npm and the package registry, for the compiler of TypeScript.
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/packages" "$@"
