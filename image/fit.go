package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// The account that commands run as by default.
const (
	userName = "user"
	userID   = 1000
)

// fit prepares an image's file system for commands, as setup.sh prepares Debian's. It runs
// no program of the image.
//
// Commands run as the account "user" in every template. If an image lacks it, fit adds it.
// With a USER in the image, "user" is a second name for that account, even for root.
// Without one, "user" is an ordinary account with id 1000, which may exist under another
// name. Such an image expects commands to run as root, so "user" gets sudo, if installed,
// and owns /usr/local.
func fit(root, imageUser string) error {
	r, err := openRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := checkShell(r); err != nil {
		return err
	}
	for name, mode := range map[string]uint32{"proc": 0o555, "sys": 0o555, "dev": 0o755, "etc": 0o755, "run": 0o755,
		"mnt": 0o755} {
		if there, err := r.has(name); err != nil {
			return err
		} else if there {
			continue
		}
		if err := r.own(name, 0, 0, mode); err != nil {
			return err
		}
	}
	if err := r.own("tmp", 0, 0, unix.S_ISVTX|0o777); err != nil {
		return err
	}
	who, err := r.account(imageUser)
	if err != nil {
		return err
	}
	if err := r.own("mnt/data", who.uid, who.gid, 0o755); err != nil {
		return err
	}
	if imageUser != "" {
		return nil
	}
	sudo, err := r.has("etc/sudoers.d")
	if err != nil {
		return err
	}
	if sudo {
		if err := r.write("etc/sudoers.d/user", []byte("Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n"),
			0o440); err != nil {
			return err
		}
	}
	return r.ownTree("usr/local", who.uid, who.gid)
}

// checkShell returns an error unless there is a shell to run commands with.
func checkShell(r rootDir) error {
	f, err := r.open("bin/sh", unix.O_RDONLY)
	if err != nil {
		return errors.New("the image has no /bin/sh: a template needs a shell to run commands")
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return errors.New("its /bin/sh is not an executable file")
	}
	return nil
}

// An account is a line of /etc/passwd.
type account struct {
	name     string
	uid, gid int
	home     string
}

// accounts parses a passwd or group file. A group is returned as an account whose uid and
// gid are the group's id.
func accounts(text []byte, fields int) []account {
	var all []account
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < fields || f[0] == "" {
			continue
		}
		a := account{name: f[0]}
		var err error
		if a.uid, err = parseID(f[2]); err != nil {
			continue
		}
		if a.gid = a.uid; fields > 4 {
			if a.gid, err = parseID(f[3]); err != nil {
				continue
			}
			a.home = f[5]
		}
		all = append(all, a)
	}
	return all
}

// account returns the account "user", which it adds if the image lacks it.
func (r rootDir) account(imageUser string) (account, error) {
	passwd, err := r.readIf("etc/passwd")
	if err != nil {
		return account{}, err
	}
	group, err := r.readIf("etc/group")
	if err != nil {
		return account{}, err
	}
	users, groups := accounts(passwd, 6), accounts(group, 3)
	ours := slices.IndexFunc(users, func(a account) bool { return a.name == userName })
	who, err := resolveUser(imageUser, users, groups)
	if err != nil {
		return account{}, err
	}
	if ours >= 0 && (imageUser == "" || users[ours].uid == who.uid && users[ours].gid == who.gid) {
		return users[ours], r.makeHome(users[ours])
	}
	if who.home == "" || !path.IsAbs(who.home) || who.home == "/" || who.home == "/nonexistent" {
		who.home = "/home/" + userName
	}
	shell := "/bin/sh"
	if bash, err := r.has("bin/bash"); err != nil {
		return account{}, err
	} else if bash {
		shell = "/bin/bash"
	}
	line := fmt.Sprintf("%s:x:%d:%d::%s:%s\n", userName, who.uid, who.gid, who.home, shell)
	if ours >= 0 {
		passwd = append([]byte(line), passwd...) // the first match wins
	} else {
		passwd = append(endLine(passwd), line...) // ids still resolve to the image's own names
	}
	if err := r.write("etc/passwd", passwd, 0o644); err != nil {
		return account{}, err
	}
	if !slices.ContainsFunc(groups, func(g account) bool { return g.gid == who.gid || g.name == userName }) {
		if err := r.write("etc/group", append(endLine(group), fmt.Sprintf("%s:x:%d:\n", userName, who.gid)...),
			0o644); err != nil {
			return account{}, err
		}
	}
	return who, r.makeHome(who)
}

// makeHome creates an account's home directory if it is missing.
func (r rootDir) makeHome(who account) error {
	home := strings.TrimPrefix(path.Clean("/"+who.home), "/")
	if home == "" {
		return nil
	}
	if there, err := r.has(home); there || err != nil {
		return err
	}
	return r.own(home, who.uid, who.gid, 0o755)
}

// resolveUser returns the account that an image's USER names: "name", "id", "name:group" and
// so on. "" is id 1000.
func resolveUser(spec string, users, groups []account) (account, error) {
	if spec == "" {
		spec = strconv.Itoa(userID)
	}
	name, group, hasGroup := strings.Cut(spec, ":")
	find := func(in []account, name string) (account, bool) {
		id, err := parseID(name)
		i := slices.IndexFunc(in, func(a account) bool { return a.name == name || err == nil && a.uid == id })
		if i >= 0 {
			return in[i], true
		}
		return account{uid: id, gid: id}, err == nil
	}
	who, ok := find(users, name)
	if !ok {
		return who, fmt.Errorf("its USER is %.100q, which is not in its /etc/passwd", spec)
	}
	if hasGroup {
		g, ok := find(groups, group)
		if !ok {
			return who, fmt.Errorf("its USER is %.100q, whose group is not in its /etc/group", spec)
		}
		who.gid = g.gid
	}
	return who, nil
}

func parseID(s string) (int, error) {
	id, err := strconv.ParseUint(s, 10, 31)
	return int(id), err
}

func (r rootDir) readIf(name string) ([]byte, error) {
	text, err := r.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// endLine appends a newline unless text is empty or ends with one.
func endLine(text []byte) []byte {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return append(text, '\n')
	}
	return text
}

// ownTree changes the owner of a directory and of everything below it. It does not follow
// links.
func (r rootDir) ownTree(name string, uid, gid int) error {
	top, err := r.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", top.Fd()))
	if err != nil {
		return err
	}
	defer dir.Close()
	owners, err := layer.OwnersOf(r.Name())
	if err != nil {
		return err
	}
	return fs.WalkDir(dir.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if kind := d.Type(); kind != 0 && kind != fs.ModeDir {
			if !isRoot() {
				return nil // links have no user extended attributes
			}
			return dir.Lchown(p, uid, gid)
		}
		f, err := dir.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := owners.Fstat(f)
		if err != nil {
			return err
		}
		return own(f, uid, gid, st.Mode&0o7777)
	})
}

// usableEnv returns the variables of an image's environment that commands receive: the last
// value of each name, without those that Berth sets itself.
func usableEnv(env []string) []string {
	var usable []string
	seen := map[string]bool{}
	for _, kv := range slices.Backward(env) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || seen[name] || strings.ContainsRune(kv, 0) || strings.HasPrefix(name, "BERTH_") ||
			slices.Contains(loginEnv, name) || len(usable) == maxEnv || len(kv) > maxEnvLine {
			continue
		}
		seen[name] = true
		usable = append(usable, kv)
	}
	slices.Reverse(usable)
	return usable
}

// loginEnv lists the variables that depend on the account commands run as.
var loginEnv = []string{"HOME", "USER", "LOGNAME", "SHELL"}

// Bounds on an image's environment.
const (
	maxEnv     = 1000
	maxEnvLine = 32 << 10
)
