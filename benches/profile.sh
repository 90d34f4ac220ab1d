#!/usr/bin/env bash
# Where the CPU time of a call goes in each of two sidecars: calls that are not journaled, 64 in flight, sampled by the
# kernel's clock, which works in a virtual machine as well. Needs `perf`. Prints one table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-10}
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

cargo bench --bench journal --no-run
cargo bench --bench journal -- --hold $((seconds + 6)) --only unjournaled > "$files/load" 2> /dev/null &
load=$!
# The first line names the processes, the second says that calls are under way.
until [ "$(wc -l < "$files/load")" -ge 2 ]; do
  kill -0 "$load" || { echo "the load ended before it began"; exit 1; }
  sleep 0.1
done
pid() { head -n 1 "$files/load" | sed "s/.*sidecar $1 \([0-9]*\).*/\1/"; }

samplers=()
for sidecar in A B; do
  perf record --quiet --event cpu-clock --freq 2000 --output "$files/$sidecar" --pid "$(pid $sidecar)" \
    -- sleep "$seconds" > /dev/null 2>&1 &
  samplers+=($!)
done
wait "${samplers[@]}"
wait "$load"
tail -n 1 "$files/load"

# Inlined code counts for what it was inlined into.
share() { # sidecar
  perf report --stdio --no-children --sort symbol --input "$files/$1" 2> /dev/null | awk '
    function add(stage) { sum[stage] += $1 }
    $1 !~ /%$/ { next }
    /\[k\]/                                                             { add("kernel: sockets, wake-ups, scheduling"); next }
    /quinn|rustls|ring_core|aes_|udp/                                   { add("QUIC and TLS"); next }
    /malloc|free|memmove|memcmp|memset|bytes::|unlink_chunk|_alloc/     { add("memory: allocation, copies, comparisons"); next }
    /jsonschema|capd_schema|regex/                                     { add("schema check"); next }
    /capd_proto::(cbor|frame|envelope|cddl|message|identity|capability)|from_utf8/ { add("frames, CBOR, envelope, CDDL"); next }
    /capd_proto::(call|ledger)|sha2|sha256/                             { add("call machines, ledger and its digest"); next }
    /capd::(daemon|registry|policy|provider|store)/                     { add("daemon: routing, policy, limits, counters"); next }
    /capd::net/                                                         { add("streams and queues"); next }
    /BTreeMap|btree|[hH]ash/                                            { add("maps of the standard library"); next }
    /tokio|clock_gettime|std::time|core::time|SystemTime/               { add("runtime and clock"); next }
    { add("the rest") }
    END { for (stage in sum) printf "%s\t%.1f\n", stage, sum[stage] }' | sort
}

printf '| stage | sidecar A | sidecar B |\n| --- | --- | --- |\n'
join -t $'\t' -a 1 -a 2 -e 0.0 -o 0,1.2,2.2 <(share A) <(share B) | sort -t $'\t' -k 3 -rn |
  awk -F '\t' '{ printf "| %s | %s %% | %s %% |\n", $1, $2, $3 }'
