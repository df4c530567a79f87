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

	"github.com/berth-run/berth/guest/editor"
	"github.com/berth-run/berth/guest/plainfile"
)

// maxState bounds the state that one command may leave, in bytes.
const maxState = 1 << 20

// A shellState is the state that calls pass on: the exported environment, with the working
// directory as its PWD.
//
// It is a script that the shell itself wrote (export -p, in a trap on EXIT) and the next
// shell reads. The script runs as its writer, so it grants no rights. A shell that is killed
// or replaces itself writes nothing, and the state stays unchanged.
//
// Its files are in a file system in memory, if the sandbox has one, because the disk may be
// full.
type shellState struct {
	dir    string
	memory string // a directory in memory; "" without one
	owner  identity

	given func() []string // the variables set after the sandbox's start

	mu    sync.Mutex
	file  string // of the state; empty before the first call
	lost  bool   // there was no room for the state of the last call, and that was not reported yet
	n     int
	same  [sha256.Size]byte // digest of the state, if keep made it current
	other bool              // the state is older than the given variables, which override it
}

// read returns the current state, or nil without one.
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

// restore replaces the current state by one that another sandbox's read returned.
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

// outdated records that variables were set after the state was written.
func (s *shellState) outdated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = true
}

// current returns the file with the state, or "". The file does not change while calls use
// it: each merge creates a new one.
func (s *shellState) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// dump creates the empty file into which a command's shell may write its state. The user
// owns the file but not its directory, so no link can replace it.
func (s *shellState) dump(c *command, when string) (string, error) {
	name := filepath.Join(s.place(), fmt.Sprintf("state-%s-%d%s", c.call.id, c.index, when))
	uid := -1
	if os.Getuid() == 0 {
		uid = s.owner.uid
	}
	if err := plainfile.Create(name, 0o600, uid, s.owner.gid); err != nil {
		return "", err
	}
	return name, nil
}

// endMark is the last line of a complete state.
const endMark = "# berth\n"

// taken returns the content of a shell's dump and removes the file. It returns "" if the
// content is missing or incomplete.
func taken(dump string) string {
	if dump == "" {
		return ""
	}
	defer os.Remove(dump)
	text, err := plainfile.Read(dump, unix.O_NOFOLLOW|unix.O_NONBLOCK, maxState+1)
	if err != nil || len(text) > maxState {
		return ""
	}
	whole, ok := strings.CutSuffix(string(text), endMark)
	if !ok {
		return ""
	}
	return whole
}

// take reads the state that a command's shell has written, and reports on the command's
// stderr if there was no room for it.
func (s *shellState) take(c *command) {
	full := c.dump == "" || !hasRoom(filepath.Dir(c.dump), 1)
	if c.left = taken(c.dump); c.left == "" && full {
		fmt.Fprint(c.stderr, noRoom)
	}
}

// noRoom is written to a command's stderr if its state could not be saved.
const noRoom = "berth: the container's disk is full: its shell's working directory and exported variables do not carry over to the next call\n"

// place returns the directory for the next file: the one in memory unless it is full.
func (s *shellState) place() string {
	if s.memory != "" && hasRoom(s.memory, 2*maxState) {
		return s.memory
	}
	return s.dir
}

// hasRoom reports whether a directory's file system has n free bytes.
func hasRoom(dir string, bytes uint64) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) >= bytes
}

// memoryDir creates the directory in memory for a guest with a sandbox of its own. Only
// root can write to it or remove it.
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

// merge combines the states of a call's commands to the current one.
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
	if err := s.keep(merged(began, left)); err != nil { // no room: the earlier state stays
		s.lost = true
	} else {
		s.other, s.lost = false, false
	}
}

// keep makes a text the current state, unless it is the same. The caller holds s.mu.
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

// unmarked returns a state without the marker, because each call has its own.
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
	// Running calls have read their state already. The previous file stays for calls that
	// are starting.
	for _, dir := range []string{s.dir, s.memory} {
		if dir != "" {
			os.Remove(filepath.Join(dir, fmt.Sprintf("state.%d", s.n-2)))
		}
	}
	return nil
}

// forgotten reports, once, that the state of the last call was lost.
func (s *shellState) forgotten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = false
	return lost
}

// prevailing returns a script that sets the given variables again, if the state is older.
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

// keepTrap lets a command set a trap on EXIT beside the one that writes the state, although
// bash has only one. The command's trap runs second, with the exit status of the shell ($?
// is right in both branches, and errexit does not end the trap between the two).
const keepTrap = `trap() { builtin trap "$@" || return; [ "$BASHPID" = "$$" ] || return 0; set -- "$(builtin trap -p EXIT)"; ` +
	`case $1 in *berth_state*) ;; "") builtin trap berth_state EXIT ;; ` +
	`*) eval "set -- $1"; set -- "${3:-:}"; builtin trap -- "if berth_state; then"$'\n'"$1"$'\n'"else"$'\n'"$1"$'\n'"fi" EXIT ;; esac; }; `

// restartScript is a command that starts the next shells as in a new container: without the
// exported variables and the working directory of earlier calls. Files and processes stay.
const restartScript = "restart_shell"

// builtins returns definitions of the shell functions that a script calls: the editor, which is a
// part of the guest's program, and the restart of the shell.
func builtins(script string) string {
	if script == restartScript {
		return restartScript + `() { echo "The shell was restarted."; }; `
	}
	if !strings.Contains(script, editor.Name) {
		return ""
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "" // the command then is not found
	}
	return fmt.Sprintf("%s() { '%s' edit; }; ", editor.Name, strings.ReplaceAll(program, "'", `'\''`))
}

// script returns the script for bash. It loads the state, sets the marker that identifies
// the command's processes, and sets the trap that writes the state. The command follows on
// the same line, so that its line numbers are right. Without keepTrap the script is plain
// sh, for images without bash.
func (s *shellState) script(c *command, before string, bash bool) string {
	var b strings.Builder
	if before != "" {
		if bash {
			b.WriteString("export -n SHELL; ") // as if bash had found it by itself
		} else {
			b.WriteString("unset SHELL; ")
		}
		fmt.Fprintf(&b, `{ . '%s'; cd -- "$PWD"; } 2>/dev/null; %s`, before, s.prevailing())
	}
	fmt.Fprintf(&b, "export %s='%s'; ", marker, c.mark())
	if c.began != "" {
		fmt.Fprintf(&b, `{ export PWD; command export -p; command echo "# berth"; } >|"%s" 2>/dev/null; `, c.began)
	}
	fmt.Fprintf(&b,
		`berth_state() { set -- $?; { export PWD; command export -p; command echo "# berth"; } >|"%s" 2>/dev/null; return $1; }; trap berth_state EXIT; `,
		c.dump)
	if bash {
		b.WriteString(keepTrap)
	}
	b.WriteString(builtins(c.script))
	b.WriteString(c.script)
	return b.String()
}
