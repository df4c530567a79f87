# Makes a place that commands can live in, whatever the packages are.
set -eu
root=$1

grep -q '^user:' "$root/etc/passwd" ||
	chroot "$root" useradd --create-home --uid 1000 --user-group --shell /bin/bash user
mkdir -p "$root/mnt/data"
# Some packages put links there when they are installed, and fail without.
for section in 1 2 3 4 5 6 7 8; do mkdir -p "$root/usr/share/man/man$section"; done
chown 1000:1000 "$root/mnt/data"

if [ -d "$root/etc/sudoers.d" ]; then
	printf 'Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/user"
	chmod 440 "$root/etc/sudoers.d/user"
fi

# pip install and npm install -g work for user, and put programs into the PATH.
# This gives user nothing that sudo does not.
chown -R 1000:1000 "$root/usr/local"
printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\nroot-user-action = ignore\n' >"$root/etc/pip.conf"
mkdir -p "$root/etc/default"
echo 'LANG=C.UTF-8' >"$root/etc/default/locale"
