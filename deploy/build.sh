#!/usr/bin/env bash
# What is shipped: target/shipped/capd and target/shipped/capctl, each optimized as one program (profile `dist`) and by what
# a load showed of the sidecar. capd is built with counters first, carries calls on loopback, and is built again; then its
# machine code is counted in the same way and put in the order in which it runs.
# Needs rustup, which has the component that merges the counts, and LLVM's BOLT (Debian: bolt-19), which it installs where it
# can. Takes 20 to 30 minutes on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc --print host-tuple)
profdata="$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata"
[ -x "$profdata" ] || rustup component add llvm-tools
# Where it stands itself: it looks for its libraries from there.
llvm_bolt() {
  local found
  found=$(compgen -c llvm-bolt | grep -xE 'llvm-bolt(-[0-9]+)?' | sort -V | tail -n 1) && realpath "$(command -v "$found")"
}
bolt=$(llvm_bolt) || {
  as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
  as_root apt-get install -y --no-install-recommends bolt-19 ||
    { as_root apt-get update && as_root apt-get install -y --no-install-recommends bolt-19; }
  bolt=$(llvm_bolt) || { echo "llvm-bolt is missing: install LLVM's BOLT, version 19 or later" >&2; exit 1; }
}
counts=$PWD/target/counts
rm -rf "$counts"
mkdir -p "$counts"

# rustc names functions after how their crates are built, so both builds are alike but for this flag, which joins those of
# .cargo/config.toml. Build scripts and procedural macros run here and now, and are not counted: hence the target.
# BOLT needs to know what in the program is an address, and takes a function for the cold or the warm part of another where its
# name has ".cold" or ".warm" in it, as a legacy name of a module `warm` does. A v0 name has no dots.
build() { # folder, rustc's flag, binaries
  cargo build --locked --profile dist --features etcd "${@:3}" --target "$host" --target-dir "target/$1" \
    --config "target.$host.rustflags = [\"$2\", \"-Csymbol-mangling-version=v0\", \"-Clink-arg=-Wl,--emit-relocs\"]"
}
build counted "-Cprofile-generate=$counts" --bin capd
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
"$profdata" merge --sparse --output "$counts/merged.profdata" "$counts"
build optimized "-Cprofile-use=$counts/merged.profdata" --bin capd --bin capctl
mkdir -p target/shipped
built=target/optimized/$host/dist
rewrite() { # where to, how
  "$bolt" "$built/capd" -o "$@" > target/counted/bolt.log 2>&1 || { tail -n 20 target/counted/bolt.log >&2; return 1; }
}
rewrite target/counted/capd -instrument -instrumentation-file="$counts/bolt" -instrumentation-file-append-pid
load "$PWD/target/counted/capd"
"$(dirname "$bolt")/merge-fdata" "$counts"/bolt.* > "$counts/merged.fdata"
rewrite target/shipped/capd -data="$counts/merged.fdata" -reorder-blocks=ext-tsp -reorder-functions=cdsort \
  -split-functions -split-all-cold -split-eh -icf=1 -plt=hot -inline-small-functions -indirect-call-promotion=calls \
  -use-old-text -remove-symtab
# What was for BOLT alone, and the names of functions. The strip of binutils would break what BOLT wrote, hence the option above.
objcopy --strip-all --wildcard --remove-section='.rela.*' --remove-section='!.rela.dyn' --remove-section='!.rela.plt' \
  "$built/capctl" target/shipped/capctl
ls -l target/shipped
