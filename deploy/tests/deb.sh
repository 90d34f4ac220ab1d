#!/usr/bin/env bash
# Installs a deb in a fresh Debian whose systemd runs, and uses the service: `deb.sh DEB`. Needs root and debootstrap.
# The service runs a command under all of the unit's hardening; then the package is installed over itself, removed and purged.
set -euo pipefail
deb=$(realpath "$1")
tests=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
group=
machine=
finish() {
  if [ -n "$machine" ]; then
    kill -KILL "$machine" 2>/dev/null || true
    wait "$machine" 2>/dev/null || true
  fi
  # Groups empty themselves once their processes are gone.
  for _ in $(seq 100); do
    [ -n "$group" ] && [ -d "$group" ] || break
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
  done
  rm -rf --one-file-system "$work"
}
trap finish EXIT
fail() {
  printf 'deb: %s\n' "$1" >&2
  [ -z "$machine" ] || inside journalctl --no-pager --unit capd.service --lines 30 >&2 || true
  exit 1
}

# systemd is here before the package, as it is on a machine.
root=$work/root
debootstrap --variant=minbase --include=systemd bookworm "$root" >"$work/debootstrap.log" ||
  { tail -n 20 "$work/debootstrap.log"; exit 1; }
cp "$deb" "$root/srv/capd.deb"

# The tree of groups that the machine's own systemd never sees.
for tree in /sys/fs/cgroup /sys/fs/cgroup/unified; do
  if [ "$(stat --file-system --format=%T "$tree")" = cgroup2fs ]; then
    group=$tree/capd-packages-$$
    break
  fi
done
[ -n "$group" ] || fail "there is no cgroup v2, which systemd needs"
mkdir "$group"
(
  echo "$BASHPID" >"$group/cgroup.procs"
  exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child --propagation private "$tests/boot.sh" "$root"
) >"$work/console" 2>&1 </dev/null &
machine=$!

# In the namespaces of the machine's first process.
inside() {
  nsenter --target "$(pgrep --parent "$machine")" --all -- "$@"
}
until_true() { # what it is, seconds, command…
  local what=$1 end=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || { cat "$work/console"; fail "$what did not happen"; }
    sleep 0.2
  done
}
until_true "the start of systemd" 60 inside systemctl is-active --quiet multi-user.target

dpkg_i() {
  inside env DEBIAN_FRONTEND=noninteractive dpkg --force-confold --install /srv/capd.deb >"$work/dpkg.log" 2>&1 ||
    { cat "$work/dpkg.log"; fail "dpkg could not install the package"; }
}
main_pid() { inside systemctl show --property MainPID --value capd.service; }
as_agent() { inside setpriv --reuid=capd --regid=capd --init-groups "$@"; }
capctl() { as_agent capctl --socket /run/capd/capd.sock "$@"; }

dpkg_i
until_true "the start of the service" 30 capctl ping
[ "$(inside systemctl is-enabled capd.service)" = enabled ] || fail "the service is not enabled"
[ "$(inside stat --format='%U %a' /var/lib/capd /run/capd /var/lib/capd/identity.key | tr '\n' ' ')" = "capd 700 capd 700 capd 600 " ] ||
  fail "state, socket or key have another owner or mode"
did=$(as_agent capd id --config /etc/capd/capd.toml)
[ "$(capctl id)" = "$did" ] || fail "capd id and the service have different DIDs"

# A command serves, with everything that the unit forbids.
inside sh -c 'cat >/etc/capd/capabilities.yaml' <<'END'
version: 1
namespace: com.example
capabilities:
  - name: length
    version: "1.0.0"
    description: Counts the bytes of its params.
    command: [/usr/bin/wc, -c]
    idempotent: true
    inputSchema: { type: string }
    outputSchema: { type: integer }
END
inside sed -i 's|^# capabilities = "/etc/capd|capabilities = "/etc/capd|' /etc/capd/capd.toml
inside systemctl restart capd.service
until_true "the restart of the service" 30 capctl ping
printed=$(capctl call com.example.length --params '"four"') || fail "the call failed"
[ "$printed" = 6 ] || fail "the call printed $printed"
inside systemctl reload capd.service || fail "the reload failed"
inside systemd-analyze verify capd.service || fail "systemd finds mistakes in the unit"
score=$(inside systemd-analyze security --no-pager --threshold=20 capd.service | grep Overall) ||
  fail "systemd-analyze security is above 2.0"
echo "$score"

# An upgrade: the same key, the edited configuration, another process.
before=$(main_pid)
dpkg_i
[ "$(main_pid)" != "$before" ] || fail "the upgrade did not restart the service"
until_true "the start after the upgrade" 30 capctl ping
[ "$(capctl id)" = "$did" ] || fail "the upgrade changed the key"
[ "$(capctl call com.example.length --params '"again"')" = 7 ] || fail "the call failed after the upgrade"

# An agent of another user: the unit is told its name, and state and socket follow.
inside useradd alice
inside sh -c 'mkdir -p /etc/systemd/system/capd.service.d && printf "[Service]\nUser=alice\n" >/etc/systemd/system/capd.service.d/user.conf'
inside sh -c 'systemctl daemon-reload && systemctl restart capd.service'
of_alice() { inside setpriv --reuid=alice --regid=alice --init-groups capctl --socket /run/capd/capd.sock "$@"; }
until_true "the start as another user" 30 of_alice ping
[ "$(of_alice id)" = "$did" ] || fail "another user's sidecar has another key"
[ "$(of_alice call com.example.length --params '"mine"')" = 6 ] || fail "the call of another user failed"

inside dpkg --remove capd >/dev/null
[ "$(inside systemctl is-active capd.service)" = inactive ] || fail "removing the package left the service running"
inside dpkg --purge capd >/dev/null 2>&1
inside test -e /var/lib/capd/identity.key || fail "purging the package removed the key"
inside test ! -e /etc/capd/capd.toml || fail "purging the package left its configuration"
echo "installed, called, upgraded, removed: $(basename "$deb")"
