package image

import (
	"fmt"
	"strings"
)

// A Recipe says what a template is made of. Its JSON and YAML are the file that
// `berth image build --file` takes.
type Recipe struct {
	Name     string   `yaml:"name"`     // of the template
	Suite    string   `yaml:"suite"`    // Debian release; default: this machine's
	Mirrors  []string `yaml:"mirrors"`  // apt source lines; default: this machine's for Debian
	Packages []string `yaml:"packages"` // Debian packages, besides the essential ones
	Run      []string `yaml:"run"`      // shell commands, run as root in the new root after all else
}

// Base is the recipe of the template "base": what the hosted containers are known
// to have, as far as Debian has it.
func Base() Recipe {
	return Recipe{
		Name: "base",
		Packages: []string{
			"bash", "coreutils", "procps", "bsdextrautils", "findutils", "grep", "sed", "gawk", "bc", "less", "file", "tree",
			"curl", "ca-certificates", "git", "jq", "sqlite3", "zip", "unzip", "xz-utils", "sudo", "iproute2",
			"python3", "python3-venv", "python3-pip", "python3-pandas", "python3-matplotlib", "python3-requests", "python3-openpyxl",
			"nodejs", "fonts-dejavu-core",
		},
		Run: []string{
			// What is slow at its first use is done once, here.
			`setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/user python3 -c 'import pandas, matplotlib.pyplot'`,
		},
	}
}

func (r Recipe) check() error {
	if !namePattern.MatchString(r.Name) {
		return fmt.Errorf("the recipe's name %q must match %s", r.Name, namePattern)
	}
	for _, p := range r.Packages {
		if p == "" || strings.ContainsAny(p, " ,\t\n'\"$`\\") || strings.HasPrefix(p, "-") {
			return fmt.Errorf("%q is not the name of a package", p)
		}
	}
	return nil
}

// setup makes every template a place that commands can live in, whatever its
// packages: the user, the working directory, and nothing of the machine that
// built it.
const setup = `set -e
root="$1"
grep -q '^user:' "$root/etc/passwd" || chroot "$root" useradd --create-home --uid 1000 --user-group --shell /bin/bash user
mkdir -p "$root/mnt/data"
chown 1000:1000 "$root/mnt/data"
if [ -d "$root/etc/sudoers.d" ]; then
	echo 'user ALL=(ALL) NOPASSWD:ALL' > "$root/etc/sudoers.d/user"
	echo 'Defaults !fqdn' >> "$root/etc/sudoers.d/user"
	chmod 440 "$root/etc/sudoers.d/user"
fi
printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n' > "$root/etc/pip.conf"
`

// cleanup removes what differs from build to build or came from this machine.
const cleanup = `set -e
root="$1"
rm -f "$root/etc/resolv.conf" "$root/etc/hostname" "$root/etc/hosts"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$root/etc/hosts"
echo sandbox > "$root/etc/hostname"
: > "$root/etc/resolv.conf"
: > "$root/etc/machine-id"
rm -rf "$root/var/log/"* "$root/var/cache/"* "$root/var/lib/apt/lists/"* "$root/var/lib/dbus/machine-id" "$root/tmp/"* "$root/root/.cache"
rm -f "$root/etc/passwd-" "$root/etc/group-" "$root/etc/shadow-" "$root/etc/gshadow-" "$root/etc/ssh/ssh_host_"*
`
