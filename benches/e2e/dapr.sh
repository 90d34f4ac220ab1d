#!/usr/bin/env bash
# Builds Dapr's sidecar and its certificate authority from its Go module into target/dapr, for the comparison
# (`cargo run --release -- --http`). Versions are pinned by dapr/go.mod and dapr/go.sum. It downloads the modules of all of Dapr's
# stable components, about 5 GB with what the compiler keeps, so nothing runs this by itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/dapr"
export GOFLAGS="-buildvcs=false -mod=mod"
out=../target/dapr
mkdir -p "$out"
go build -o "$out/sentry" github.com/dapr/dapr/cmd/sentry
# The smaller of the two flavours that Dapr is published in.
go build -tags stablecomponents -o "$out/daprd" .
