package docker

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// The driver's own system call filter applies, not the engine's: old engines permit io_uring
// and AF_VSOCK.
func TestSystemCallsAreFiltered(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t), Options{Host: dockertest.Host(t)})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "filtered", Template: drivertest.Template(t)})
	for _, who := range []string{"", "sudo "} {
		if r := b.Sh(who + guestPath + " filtered"); r.Code != 0 {
			t.Errorf("%s: got %+v", who, r)
		}
	}
	// These are the errors on which libraries fall back.
	for call, want := range map[string]int{"425, 1, 0": 1, "435, 0, 0": 38, "206, 1, 0": 38, "272, 0x10000000": 1,
		"41, 40, 1, 0": 1, "41, 16, 3, 12": 1, "41, 16, 3, 6": 1} {
		if got := b.Must(`perl -e 'syscall(` + call + `); print $!+0'`); got != strconv.Itoa(want) {
			t.Errorf("syscall(%s): got error %s, want %d", call, got, want)
		}
	}
}

// Common programs work with the filter.
func TestProgramsPassTheFilter(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t), Options{Host: dockertest.Host(t)})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "programs", Template: drivertest.Template(t)})
	for _, script := range []string{
		`mkdir -p p/DEBIAN p/opt/p && echo x >p/opt/p/x && printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.com>\nDescription: p\n' >p/DEBIAN/control && dpkg-deb -b p p.deb >/dev/null && sudo dpkg -i p.deb >/dev/null && cat /opt/p/x && sudo dpkg -r p >/dev/null`,
		`apt-get --print-uris update >/dev/null && apt-cache stats >/dev/null && sudo apt-get -s install coreutils >/dev/null`,
		`python3 -c '
import socket, threading, subprocess, select, os, signal, tempfile
a, b = socket.socketpair(); b.send(b"x"); assert a.recv(1) == b"x"
l = socket.create_server(("127.0.0.1", 0)); socket.create_connection(l.getsockname())
t = [threading.Thread(target=lambda: None) for _ in range(20)]; [x.start() for x in t]; [x.join() for x in t]
e = select.epoll(); e.register(a)
assert subprocess.run(["true"]).returncode == 0
signal.setitimer(signal.ITIMER_REAL, 1000)
os.sched_getaffinity(0); os.getrandom(8); os.memfd_create("x")
f = tempfile.TemporaryFile(); os.posix_fallocate(f.fileno(), 0, 10)
'`,
		`perl -e '$SIG{ALRM} = sub {}; fork or exit; wait; opendir(my $d, "/proc"); exit 0'`,
		`script=$(mktemp); printf '#!/bin/sh\nexit 0\n' >$script; chmod +x $script; setpriv --no-new-privs $script && setarch -R true && nice true && ionice true; timeout 5 true && flock $script true && getent hosts localhost && id && sudo id && sudo -u user id && sudo su user -c id`,
		`tar -C /usr/bin -cf - env | tar -C /tmp -xf - && ls -laR /etc >/dev/null && find / -xdev -name nothing 2>/dev/null; df >/dev/null && ps aux >/dev/null && cp --reflink=auto --preserve=all /usr/bin/env /tmp/env2 && (tail -f /dev/null & kill $!)`,
		`curl -s --unix-socket /nothing http://x/; curl -s http://127.0.0.1:1/; test $? = 7`,
		`test "$(ulimit -n) $(ulimit -Hn)" = "4096 4096"`,
	} {
		if r := b.ShTimeout(script, time.Minute); r.Code != 0 {
			t.Errorf("%s: got %+v", script, r)
		}
	}
}

// The embedded profile has one rule for each system call, so that none is permitted by a second
// rule.
func TestProfile(t *testing.T) {
	var p struct {
		DefaultAction string
		Syscalls      []struct {
			Names  []string
			Action string
			Args   []struct{ Index, Value, ValueTwo uint64 }
		}
	}
	if err := json.Unmarshal(profile, &p); err != nil {
		t.Fatal(err)
	}
	if p.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Errorf("others: got %s", p.DefaultAction)
	}
	allowed := map[string]bool{}
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			if rule.Action == "SCMP_ACT_ALLOW" && len(rule.Args) == 0 {
				allowed[name] = true
			}
		}
	}
	for _, name := range strings.Fields(`acct add_key bpf clone clone3 delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick
		init_module io_setup io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind
		migrate_pages modify_ldt mount mount_setattr move_mount move_pages name_to_handle_at_x nfsservctl open_by_handle_at open_tree perf_event_open
		personality pidfd_getfd pivot_root process_madvise quotactl quotactl_fd reboot request_key set_mempolicy setdomainname sethostname setns
		settimeofday socket socketcall swapoff swapon syslog umount2 unshare uselib userfaultfd ustat vhangup vm86`) {
		if allowed[name] {
			t.Errorf("%s is allowed", name)
		}
	}
	if len(allowed) < 250 {
		t.Errorf("%d system calls are allowed", len(allowed))
	}
}

// takeTerminals opens all available terminals, prints their number, and holds them until the
// file "go" exists.
const takeTerminals = `python3 -c '
import os, time
held = []
try:
    while True: held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError as e: print(len(held), e.errno, flush=True)
open("held", "w")
while not os.path.exists("go"): time.sleep(0.01)
'`

// A container that opens all its terminals does not affect its neighbors.
func TestTerminalsOfNeighbours(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t), Options{Host: dockertest.Host(t)})
	if d.noPTYs != "" {
		t.Fatalf("the engine does not bound terminals: %s", d.noPTYs)
	}
	greedy := drivertest.Start(t, d, sandbox.Spec{ID: "greedy", Template: drivertest.Template(t)})
	other := drivertest.Start(t, d, sandbox.Spec{ID: "other", Template: drivertest.Template(t)})
	took := make(chan string, 1)
	go func() { took <- greedy.ShTimeout("sudo "+takeTerminals, 2*time.Minute).Stdout }()
	greedy.Must("while [ ! -e held ]; do sleep 0.05; done")
	got := other.Sh(strings.ReplaceAll(takeTerminals, `os.path.exists("go")`, "True"))
	greedy.Must("touch go")
	want := fmt.Sprintf("%d 28\n", maxTerminals)
	if first := <-took; first != want || got.Stdout != want {
		t.Errorf("the first opened %q, the other meanwhile %+v, want %q each", first, got, want)
	}
	if got := other.Must(`stat -c %a /dev/ptmx /dev/pts/ptmx | sort -u; script -qc tty /dev/null`); !strings.Contains(
		got, "/dev/pts/0") {
		t.Errorf("a terminal: got %q", got)
	}
}

// withoutFilter is a runtime that drops the filter.
const withoutFilter = `#!/usr/bin/env python3
import json, os, shutil, sys
for i, word in enumerate(sys.argv):
    if word == "--bundle":
        path = os.path.join(sys.argv[i + 1], "config.json")
        config = json.load(open(path))
        config["linux"].pop("seccomp", None)
        json.dump(config, open(path, "w"))
os.execv(shutil.which("runc"), ["runc"] + sys.argv[1:])
`

// An engine that does not apply the filter is refused at the start, with the reason.
func TestEngineWithoutFilter(t *testing.T) {
	for _, program := range []string{"python3", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	runtime := filepath.Join(t.TempDir(), "without-filter")
	if err := os.WriteFile(runtime, []byte(withoutFilter), 0o755); err != nil {
		t.Fatal(err)
	}
	host := dockertest.Start(t, "--add-runtime=without="+runtime)
	d, err := Open(Options{StateDir: drivertest.StateDir(t), GuestPath: drivertest.Guest(t), Host: host,
		Runtime: "without"})
	if err == nil {
		_ = d.Clear(t.Context())
		t.Fatal("the engine is accepted")
	}
	if !strings.Contains(err.Error(), "io_uring_setup is not filtered") {
		t.Errorf("got %v", err)
	}
}
