#!/usr/bin/env bash
# Boots systemd in a folder: `boot.sh ROOT`, started by `unshare` with mount, process, network, IPC, UTS and cgroup namespaces of
# its own. It becomes the first process, and ends with it. What it mounts goes with the mount namespace.
set -euo pipefail
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
# The machine's own settings stay as they are.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ip link set lo up
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=capd-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --log-target=console --show-status=no --unit=multi-user.target
