# Removes what differs from build to build or comes from the machine that built.
set -eu
root=$1

echo sandbox >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
rm -f "$root/etc/resolv.conf" "$root/etc/machine-id" "$root/var/lib/dbus/machine-id"
: >"$root/etc/resolv.conf"
: >"$root/etc/machine-id"

# The day of a password's last change is the day of the build.
sed -i -E 's/^([^:]*:[^:]*):[0-9]+:/\1:1:/' "$root/etc/shadow"
rm -f "$root"/etc/*- "$root"/etc/.pwd.lock "$root"/etc/ssh/ssh_host_* "$root"/var/lib/dpkg/*-old

# Files only: apt and debconf expect their directories.
find "$root/var/log" "$root/var/lib/apt/lists" -type f -delete
find "$root/var/cache" -type f ! -path '*/debconf/*.dat' -delete
rm -rf "$root/var/lib/apt/lists/auxfiles" "$root"/var/tmp/* "$root/root/.cache"

# Without its configuration, which mmdebstrap removes itself, apt works on this machine.
find "$root/tmp" -mindepth 1 -maxdepth 1 ! -path "$MMDEBSTRAP_APT_CONFIG" -exec rm -rf {} +
