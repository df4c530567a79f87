#!/bin/sh
# Installs Berth from a release: downloads the program of this machine, verifies it and puts it into /usr/local. It
# starts nothing, changes no service that runs, and asks for nothing.
#
#   sh install.sh [--version 1.2.3] [--prefix /usr/local] [--no-service]
#   sh install.sh --uninstall [--prefix /usr/local]
#
# BERTH_RELEASES is the URL of the releases, BERTH_SIGNERS a file of keys that may sign them, in place of those below.
# It needs curl, tar, sha256sum and ssh-keygen.
set -eu

releases="${BERTH_RELEASES:-https://github.com/berth-run/berth/releases}"
version=latest
prefix=/usr/local
service=yes
uninstall=no

fail() {
	echo "install: $1" >&2
	exit 1
}

# signers prints the keys that may sign a release, as an allowed_signers file of ssh-keygen.
signers() {
	if [ -n "${BERTH_SIGNERS:-}" ]; then
		cat "$BERTH_SIGNERS"
		return
	fi
	cat <<-'END'
		@SIGNERS@
	END
}

while [ $# -gt 0 ]; do
	case "$1" in
	--version)
		[ $# -gt 1 ] || fail "--version needs a version, such as 1.2.3"
		version="${2#v}"
		shift
		;;
	--prefix)
		[ $# -gt 1 ] || fail "--prefix needs a directory"
		prefix="$2"
		shift
		;;
	--no-service) service=no ;;
	--uninstall) uninstall=yes ;;
	*) fail "unknown argument $1; known are --version, --prefix, --no-service and --uninstall" ;;
	esac
	shift
done
case "$prefix" in /*) ;; *) fail "--prefix $prefix is not an absolute path" ;; esac
unit=/etc/systemd/system/berth.service

if [ "$uninstall" = yes ]; then
	if [ -e "$unit" ] && [ -d /run/systemd/system ]; then systemctl disable --now berth >/dev/null 2>&1 || true; fi
	[ ! -x "$prefix/bin/berth" ] || "$prefix/bin/berth" stop --all --yes >/dev/null 2>&1 || true
	rm -f "$prefix/bin/berth" "$unit" "$prefix/share/bash-completion/completions/berth" \
		"$prefix/share/zsh/site-functions/_berth" "$prefix/share/fish/vendor_completions.d/berth.fish" \
		"$prefix/share/man/man1/berth.1" "$prefix/share/man/man1"/berth-*.1
	echo "install: removed $prefix/bin/berth; /var/lib/berth and /etc/berth stay, with everything that clients have stored"
	exit 0
fi

for program in curl tar sha256sum ssh-keygen; do
	command -v $program >/dev/null || fail "$program is needed; ssh-keygen is in openssh-client or openssh"
done
[ "$(uname -s)" = Linux ] || fail "Berth runs on Linux; its command line reaches a server from there, too"
case "$(uname -m)" in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "there is no release for $(uname -m)" ;;
esac
case "$version" in
latest) url="$releases/latest/download" ;;
*[!0-9A-Za-z.+-]* | "") fail "\"$version\" is not a version such as 1.2.3" ;;
*) url="$releases/download/v$version" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
signers >"$work/signers"
grep -q '^[^#].* ssh-\|^[^#].* ecdsa-\|^[^#].* sk-' "$work/signers" || fail "this copy names no key that signs releases: set BERTH_SIGNERS to a file of the publisher's"
get() {
	curl -fsSL --proto '=https,http' --retry 3 -o "$work/$1" "$url/$1" || fail "$url/$1 could not be downloaded"
}
get SHA256SUMS
get SHA256SUMS.sig
signed=no
while read -r name _; do
	case "$name" in "" | "#"*) continue ;; esac
	if ssh-keygen -Y verify -n berth-release -f "$work/signers" -I "$name" -s "$work/SHA256SUMS.sig" <"$work/SHA256SUMS" >/dev/null 2>&1; then
		signed="$name"
		break
	fi
done <"$work/signers"
[ "$signed" != no ] || fail "SHA256SUMS of $url has no signature of a known signer"
file=$(sed -n "s/^[0-9a-f]*  \(berth_.*_linux_$arch\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
case "$file" in "" | */* | *"
"*) fail "the release lists no program for $arch" ;; esac
found=${file#berth_}
found=${found%"_linux_$arch.tar.gz"}
[ "$version" = latest ] || [ "$version" = "$found" ] || fail "the server has version $found in place of $version"
# Who serves an old release as the latest one brings its faults back. Its signature is as good as ever.
present=$("$prefix/bin/berth" version 2>/dev/null | sed -n '1s/^\(berth *\)*\([0-9][0-9A-Za-z.+-]*\).*/\2/p') || true
if [ "$version" = latest ] && [ -n "$present" ] && [ "$present" != "$found" ] &&
	[ "$(printf '%s\n' "$present" "$found" | sort -V | tail -1)" = "$present" ]; then
	fail "the server's latest version is $found, and $present is installed here; --version $found installs the older one"
fi
echo "install: Berth $found for $arch, signed by $signed"
get "$file"
(cd "$work" && grep "  $file\$" SHA256SUMS | sha256sum -c --status) || fail "$file does not have the checksum of the release"
tar -xzf "$work/$file" -C "$work" --no-same-owner
root="$work/${file%.tar.gz}"

# The new program takes the place of the old one in one step: a server that runs keeps the one that it has.
install -D -m 0755 "$root/berth" "$prefix/bin/.berth.new" || fail "$prefix/bin cannot be written; run this as root, or use --prefix"
mv "$prefix/bin/.berth.new" "$prefix/bin/berth"
install -D -m 0644 "$root/completions/berth.bash" "$prefix/share/bash-completion/completions/berth"
install -D -m 0644 "$root/completions/berth.zsh" "$prefix/share/zsh/site-functions/_berth"
install -D -m 0644 "$root/completions/berth.fish" "$prefix/share/fish/vendor_completions.d/berth.fish"
install -D -m 0644 -t "$prefix/share/man/man1" "$root/man"/*.1
"$prefix/bin/berth" version | sed 's/^/install: /'
if [ "$(id -u)" = 0 ] && [ $service = yes ]; then
	install -D -m 0644 "$work/signers" /etc/berth/release-signers
	[ -e /etc/berth/berth.yaml ] || install -D -m 0644 "$root/berth.yaml" /etc/berth/berth.yaml
	install -d -m 0700 /var/lib/berth
	if [ -d /run/systemd/system ]; then
		sed "s|/usr/bin/berth|$prefix/bin/berth|" "$root/berth.service" >"$work/unit"
		install -m 0644 "$work/unit" "$unit"
		systemctl daemon-reload
		if systemctl is-active --quiet berth; then
			echo "install: the service still runs the former version; systemctl restart berth changes that, and containers continue"
		else
			echo "install: next: $prefix/bin/berth image fetch && systemctl enable --now berth"
		fi
		exit 0
	fi
fi
echo "install: next: $prefix/bin/berth image fetch && $prefix/bin/berth serve"
