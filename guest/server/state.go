package server

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxState bounds the state that one command may leave, in bytes.
const maxState = 1 << 20

// A shellState is what carries over from call to call: the exported environment,
// with the working directory as its PWD.
//
// It is a script that the shell itself wrote (export -p, in a trap on EXIT) and
// the next shell reads: it runs as the user who could have said it anyway. A shell
// that is killed or replaces itself writes nothing, and the state stays as it was.
//
// Its files are in memory, where the sandbox has some for files: its disk may be full.
type shellState struct {
	dir    string
	memory string // a directory in memory, "" if there is none
	owner  identity

	given func() []string // the environment that this sandbox was given after its start

	mu    sync.Mutex
	file  string // of the state; empty before the first call
	lost  bool   // there was no room for the state of the last call, which is not reported yet
	n     int
	same  [sha256.Size]byte // of what the state says, if keep made it current
	other bool              // the state is of before this sandbox was given what it has: that prevails
}

// read returns the current state, nil if there is none.
func (s *shellState) read() []byte {
	name := s.current()
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil || len(text) > maxState {
		return nil
	}
	return text
}

// restore makes what another sandbox's read returned the current state.
func (s *shellState) restore(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil || len(text) == 0 || len(text) > maxState {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = true
	return s.save(text)
}

// outdated says that the sandbox was given something after the state was written.
func (s *shellState) outdated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = true
}

// current returns the file with the state, "" for none. The file is not changed
// while calls use it: each merge makes a new one.
func (s *shellState) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// dump makes the empty file into which a command's shell may write its state. It
// is the user's; the directory is not, so that no link can take its place.
func (s *shellState) dump(c *command, when string) (string, error) {
	name := filepath.Join(s.place(), fmt.Sprintf("state-%s-%d%s", c.call.id, c.index, when))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if os.Getuid() == 0 {
		err = f.Chown(s.owner.uid, s.owner.gid)
	}
	return name, err
}

// endMark is the last line of what a shell writes, by which it is known to be whole.
const endMark = "# berth\n"

// taken returns what a shell wrote into its dump, which goes; "" is nothing, or not all.
func taken(dump string) string {
	if dump == "" {
		return ""
	}
	defer os.Remove(dump)
	f, err := os.OpenFile(dump, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil || len(text) > maxState {
		return ""
	}
	whole, ok := strings.CutSuffix(string(text), endMark)
	if !ok {
		return ""
	}
	return whole
}

// take takes over what a command's shell has left, and tells the command if there was no
// room for it.
func (s *shellState) take(c *command) {
	full := c.dump == "" || !hasRoom(filepath.Dir(c.dump), 1)
	if c.left = taken(c.dump); c.left == "" && full {
		fmt.Fprint(c.stderr, noRoom)
	}
}

// noRoom is printed to a command when the former state could not be written.
const noRoom = "berth: the container's disk is full: its shell's working directory and exported variables do not carry over to the next call\n"

// place returns the directory for what is written next: the one in memory unless that is
// full.
func (s *shellState) place() string {
	if s.memory != "" && hasRoom(s.memory, 2*maxState) {
		return s.memory
	}
	return s.dir
}

// hasRoom reports whether a directory's file system has that many bytes left.
func hasRoom(dir string, bytes uint64) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) >= bytes
}

// memoryDir makes the directory in memory for a guest that has the sandbox for itself. Who
// is not root can neither write there nor remove it.
func memoryDir() string {
	var st unix.Statfs_t
	if os.Getpid() != 1 || unix.Statfs("/dev/shm", &st) != nil || st.Type != unix.TMPFS_MAGIC {
		return ""
	}
	dir, err := os.MkdirTemp("/dev/shm", ".berth-")
	if err != nil {
		return ""
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return ""
	}
	return dir
}

// merge makes the states that the commands of a call left into the current one.
func (s *shellState) merge(c *call, before string) {
	var began string
	if before != "" && len(c.commands) > 1 {
		text, _ := os.ReadFile(before) // without it, the states are read one after the other
		began = string(text)
	}
	var left []string
	for _, cmd := range c.commands {
		if cmd.began != "" {
			began = taken(cmd.began)
		}
		if cmd.left != "" {
			left = append(left, cmd.left)
		}
	}
	if len(left) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.keep(merged(began, left)); err != nil { // there is no room: the former state holds
		s.lost = true
	} else {
		s.other, s.lost = false, false
	}
}

// keep makes a text the current state, unless that says the same. The caller holds s.mu.
func (s *shellState) keep(text string) error {
	same := sha256.Sum256([]byte(unmarked(text)))
	if s.file != "" && s.same == same {
		return nil
	}
	if err := s.save([]byte(text)); err != nil {
		return err
	}
	s.same = same
	return nil
}

// unmarked returns a state without the marker, which each call has of its own.
func unmarked(text string) string {
	all, ok := declarations(text)
	if !ok {
		return text
	}
	var b strings.Builder
	for _, d := range all {
		if d.name != marker {
			b.WriteString(d.text)
		}
	}
	return b.String()
}

// save makes a text the current state. The caller holds s.mu.
func (s *shellState) save(text []byte) error {
	s.same = [sha256.Size]byte{}
	s.n++
	name := filepath.Join(s.place(), fmt.Sprintf("state.%d", s.n))
	if err := os.WriteFile(name, text, 0o600); err != nil {
		os.Remove(name)
		return err
	}
	if os.Getuid() == 0 {
		if err := os.Chown(name, s.owner.uid, s.owner.gid); err != nil {
			return err
		}
	}
	s.file = name
	// A call that runs has read its state already; the one before is for those
	// that are just starting.
	for _, dir := range []string{s.dir, s.memory} {
		if dir != "" {
			os.Remove(filepath.Join(dir, fmt.Sprintf("state.%d", s.n-2)))
		}
	}
	return nil
}

// forgotten reports, once, that what the last call left was lost.
func (s *shellState) forgotten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = false
	return lost
}

// prevailing returns a script that sets what this sandbox was given again, if the
// state is of before.
func (s *shellState) prevailing() string {
	s.mu.Lock()
	other := s.other
	s.mu.Unlock()
	if !other {
		return ""
	}
	var b strings.Builder
	for _, kv := range s.given() {
		if name, value, _ := strings.Cut(kv, "="); variable.MatchString(name) {
			fmt.Fprintf(&b, "export %s='%s'; ", name, strings.ReplaceAll(value, "'", `'\''`))
		}
	}
	return b.String()
}

// keepTrap lets a command have a trap on EXIT of its own beside the one that writes
// the state: bash has one only. What the command set runs second, and finds the
// status that the shell ends with ($? holds in both branches, and errexit does not
// end the trap between the two).
const keepTrap = `trap() { builtin trap "$@" || return; [ "$BASHPID" = "$$" ] || return 0; set -- "$(builtin trap -p EXIT)"; ` +
	`case $1 in *berth_state*) ;; "") builtin trap berth_state EXIT ;; ` +
	`*) eval "set -- $1"; set -- "${3:-:}"; builtin trap -- "if berth_state; then"$'\n'"$1"$'\n'"else"$'\n'"$1"$'\n'"fi" EXIT ;; esac; }; `

// script returns what bash is given: a first line that takes the state over, sets
// the marker that finds the command's processes again and sees to the state's
// being written, and behind it, on the same line so that line numbers stay, the
// command. Without keepTrap it is plain sh, for images without bash.
func (s *shellState) script(c *command, before string, bash bool) string {
	var b strings.Builder
	if before != "" {
		if bash {
			b.WriteString("export -n SHELL; ") // as if bash had looked for it
		} else {
			b.WriteString("unset SHELL; ")
		}
		fmt.Fprintf(&b, `{ . '%s'; cd -- "$PWD"; } 2>/dev/null; %s`, before, s.prevailing())
	}
	fmt.Fprintf(&b, "export %s='%s'; ", marker, c.mark())
	if c.began != "" {
		fmt.Fprintf(&b, `{ export PWD; command export -p; command echo "# berth"; } >|"%s" 2>/dev/null; `, c.began)
	}
	fmt.Fprintf(&b, `berth_state() { set -- $?; { export PWD; command export -p; command echo "# berth"; } >|"%s" 2>/dev/null; return $1; }; trap berth_state EXIT; `, c.dump)
	if bash {
		b.WriteString(keepTrap)
	}
	b.WriteString(c.script)
	return b.String()
}
