#!/usr/bin/env bash
# What it costs to observe calls: capd with and without the histogram of durations, and with spans of every call, of a hundredth of
# the calls, and of none. Builds capd twice, alike but for one line, in the profile `release`; then compares whole calls, and the
# processor time of the function with that line.
#
#   benches/e2e/observed.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds=${1:-10}
out=$PWD/target/observed
without=$(mktemp -d)
trap 'rm -rf "$without"' EXIT

build() { # folder of sources, name
  cargo build --release --locked --manifest-path "$1/Cargo.toml" --bin capd --target-dir "$out/build"
  cp "$out/build/release/capd" "$out/$2"
}
mkdir -p "$out"
build . with
# The files that git knows, as they are here.
git ls-files -z --cached | tar --null --files-from=- --create | tar --extract --directory "$without"
line=src/daemon/account/access.rs
sed -i 's/self.meter.ended(role, end.counted(), Some((took_us, named)));/let _ = (took_us, named);\n        self.meter.ended(role, end.counted(), None);/' "$without/$line"
! cmp --silent "$line" "$without/$line" || { echo "$line does not record durations as it did"; exit 1; }
build "$without" without

# Nobody listens at port 9: every span is made, queued and dropped, which costs the calls what sending costs them.
collector=otlp.endpoint=http://127.0.0.1:9
benches/e2e/compare.py --rounds "$rounds" "without=$out/without" "with=$out/with" \
  "every-call-traced=$out/with,$collector" "one-in-100-traced=$out/with,$collector,otlp.sample_ratio=0.01"

# Rounds differ by more than the histogram may cost, so its share of the sidecars' processor time is counted as well.
if command -v perf > /dev/null; then
  benches/e2e/share.py Meter::ended "without=$out/without" "with=$out/with" "without=$out/without" "with=$out/with"
else
  echo "perf is missing, so the share of processor time is not counted"
fi
