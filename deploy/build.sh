#!/usr/bin/env bash
# What is shipped: target/shipped/capd and target/shipped/capctl, each optimized as one program (profile `dist`) and by what
# a load showed of the sidecar: capd is built with counters first, carries calls on loopback, and is built again.
# Needs rustup, which has the component that merges the counts. Takes 20 to 40 minutes on two cores, by how fast they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc --print host-tuple)
profdata="$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata"
[ -x "$profdata" ] || rustup component add llvm-tools
counts=$PWD/target/counts
rm -rf "$counts"
mkdir -p "$counts"

# rustc names functions after how their crates are built, so both builds are alike but for this flag, which joins those of
# .cargo/config.toml. Build scripts and procedural macros run here and now, and are not counted: hence the target.
build() { # folder, binaries; flags: rustc's
  local list
  printf -v list '"%s",' "${flags[@]}"
  CFLAGS="${CFLAGS:-} -fno-asynchronous-unwind-tables -fno-unwind-tables" \
    cargo build --locked --profile dist --features etcd "${@:2}" --target "$host" --target-dir "target/$1" \
      --config "target.$host.rustflags = [$list]"
}
# Before calls of functions are counted, only the shortest functions are put into their callers. Nothing unwinds, so there are no
# tables for it.
common=(-Cllvm-args=-preinline-threshold=25 -Cforce-unwind-tables=no)
flags=("-Cprofile-generate=$counts" "${common[@]}")
build counted --bin capd
# The benchmark's caller and provider are the load; beside it cargo builds a capctl.
agents=$(cargo bench --locked --bench journal --no-run --message-format json |
  sed -n 's/.*"executable":"\([^"]*\/journal-[^"]*\)".*/\1/p' | tail -n 1)
capctl=$PWD/target/release/capctl

work=
running=()
finish() {
  for pid in "${running[@]}"; do kill "$pid" 2> /dev/null || true; done
  wait
  running=()
  rm -rf "$work"
}
trap finish EXIT

# A sidecar that runs; what it announces is in $work/NAME.json.
sidecar() { # name, the rest of its configuration
  mkdir "$work/$1"
  printf '[agent]\ndir = "%s"\n[listen]\nquic = "127.0.0.1:0"\n[log]\nlevel = "warn"\n%s\n' "$work/$1" "$2" > "$work/$1.toml"
  "$capd" run --announce --config "$work/$1.toml" > "$work/$1.json" &
  running+=($!)
  until [ -s "$work/$1.json" ]; do kill -0 "$!"; sleep 0.1; done
}
said() { sed "s/.*\"$2\":\"\([^\"]*\)\".*/\1/" "$work/$1.json"; }

# Has two sidecars carry calls, of every kind that is to be fast, and ends them.
load() { # capd
  capd=$1
  work=$(mktemp -d)
  cat > "$work/schema.json" << 'END'
{"type": "object", "required": ["city", "days"], "additionalProperties": false, "properties": {
  "city": {"type": "string", "minLength": 1, "maxLength": 100}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
  "notes": {"type": "array", "items": {"type": "string"}}}}
END
  for bytes in 300 150000; do
    text=$(head -c $bytes /dev/zero | tr '\0' x)
    printf '{"city":"Reykjavik","days":5,"notes":["%s"]}' "$text" > "$work/$bytes.json"
  done
  for signatures in channel always; do
    rules=$(printf '[peer]\nadmit = "any"\nsignatures = "%s"\n[[allow]]\ncallers = ["*"]\ncapabilities = ["*"]' $signatures)
    sidecar b-$signatures "$rules"
    peer=$(printf '[[peers]]\ndid = "%s"\naddresses = ["quic://%s"]\nserves = ["*"]' "$(said b-$signatures did)" "$(said b-$signatures quic)")
    sidecar a-$signatures "$rules"$'\n'"$peer"
    from=$(said a-$signatures socket) to=$(said b-$signatures socket)

    coproc provider { "$agents" --provider "$to"; }
    read -r _ready <&"${provider[0]}"
    for capability in unjournaled journaled; do
      for load in "64 6000" "16 2000" "1 2000"; do echo "org.example.$capability:1.0.0 $load 60"; done
    done | "$agents" --caller "$from"
    kill "$provider_PID"
    wait "$provider_PID" || true

    id=org.example.checked:1.0.0
    "$capctl" serve --socket "$to" --idempotent --concurrency 64 --input-schema "$work/schema.json" \
      --output-schema "$work/schema.json" $id -- cat > "$work/serve.log" 2>&1 &
    running+=($!)
    until "$capctl" call --socket "$from" $id --params "@$work/300.json" > /dev/null 2>&1; do sleep 0.1; done
    "$capctl" bench --socket "$from" $id --params "@$work/300.json" --duration 5s --warm-up 1s
    "$capctl" bench --socket "$from" $id --params "@$work/150000.json" --duration 2s --warm-up 1s --in-flight 4
  done
  finish
}

load "$PWD/target/counted/$host/dist/capd"
# With what was never run, which is then compiled to be short: `--sparse` would leave it out, and it would be compiled to be fast.
"$profdata" merge --output "$counts/merged.profdata" "$counts"
# And nothing is put into a caller that never called it, unless that makes it shorter; there, equal sequences of instructions
# are functions of their own.
flags=("-Cprofile-use=$counts/merged.profdata" "${common[@]}"
  -Cllvm-args=-inline-cold-callsite-threshold=0 -Cllvm-args=-inlinecold-threshold=0
  -Cllvm-args=-enable-machine-outliner=optimistic-pgo)
# rustc brings LLD for x86-64 only.
case $host in x86_64-*) flags+=("-Clink-arg=-Wl,--no-eh-frame-hdr,--icf=safe,-T,$PWD/deploy/tables.ld") ;; esac
build optimized --bin capd --bin capctl
mkdir -p target/shipped
for name in capd capctl; do
  objcopy --strip-all "target/optimized/$host/dist/$name" "target/shipped/$name"
done
ls -l target/shipped
