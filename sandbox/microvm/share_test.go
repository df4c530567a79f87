package microvm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestShare inspects the program that serves a sandbox's mounts: what it could do to the host
// if a machine took it over, and the owners of the files that it creates.
func TestShare(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t))
	if d.share == "" {
		t.Skipf("skipped: no mounts: %s", d.noMounts)
	}
	source := drivertest.StateDir(t)
	if err := os.Chown(source, user, user); err != nil {
		t.Fatal(err)
	}
	b := drivertest.Start(t, d, sandbox.Spec{ID: "share", Template: drivertest.Template(t),
		Mounts: []sandbox.Mount{{Name: "data", Path: source}}})
	s, err := d.base.Find("share")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Process", func(t *testing.T) { postureShare(t, s) })

	b.Must("cd /mnt/volumes/data; echo mine >user; sudo sh -c 'echo mine >root; chown 33:33 root; umask 077; echo mine >secret'")
	for name, want := range map[string]uint32{"user": user, "root": 33, "secret": 0} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(source, name), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != want || st.Gid != want {
			t.Errorf("%s: got %d:%d on the host, want %d", name, st.Uid, st.Gid, want)
		}
	}
	if r := b.Sh("sudo chown 70000 /mnt/volumes/data/root"); r.Code == 0 {
		t.Error("the sandbox changed a file's owner to a user of the host")
	}

	if err := d.Pause(t.Context(), "share"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "user"), []byte("longer than mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Resume(t.Context(), "share"); err != nil {
		t.Fatal(err)
	}
	if got := b.Must("cat /mnt/volumes/data/user"); got != "longer than mine" {
		t.Errorf("a file changed during the pause: got %q", got)
	}
}

// postureShare inspects the processes of virtiofsd.
func postureShare(t *testing.T, s instance) {
	rec, err := s.record()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := s.cgroup.Procs()
	if err != nil {
		t.Fatal(err)
	}
	qemu, _, _ := s.qemu()
	seen, serving := 0, 0
	for _, pid := range pids {
		if pid == qemu {
			continue
		}
		seen++
		status := statusFields(readFile(t, fmt.Sprintf("/proc/%d/status", pid)))
		ids := strings.TrimSpace(strings.Repeat(strconv.Itoa(rec.Share)+" ", 4))
		for field, want := range map[string]string{"Name": "virtiofsd", "NoNewPrivs": "1", "Uid": ids, "Gid": ids,
			"Groups": ""} {
			if got := status[field]; got != want {
				t.Errorf("%s: got %q, want %q", field, got, want)
			}
		}
		if users := strings.Fields(readFile(t, fmt.Sprintf("/proc/%d/uid_map", pid))); !slices.Equal(users,
			[]string{"0", strconv.Itoa(rec.Share), strconv.Itoa(shareUsers)}) {
			t.Errorf("users: got %v", users)
		}
		for _, ns := range []string{"user", "mnt", "net", "ipc", "uts", "pid"} {
			mine, _ := os.Readlink("/proc/self/ns/" + ns)
			theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			if theirs == "" || theirs == mine {
				t.Errorf("%s namespace: got the server's", ns)
			}
		}
		if env := readFile(t, fmt.Sprintf("/proc/%d/environ", pid)); env != "" {
			t.Errorf("environment: got %q, want none", env)
		}
		for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/limits", pid))) {
			if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && f[4] != "0" {
				t.Errorf("got %s", line)
			}
		}
		if status["Seccomp"] != "2" {
			continue // the waiting parent
		}
		serving++
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
		if err != nil || len(entries) != 1 || entries[0].Name() != "data" {
			t.Errorf("it sees %v, %v, want the mount", entries, err)
		}
		for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/mountinfo", pid))) {
			options := strings.Split(strings.Fields(line)[5], ",")
			if !slices.Contains(options, "nosuid") || strings.HasSuffix(strings.Fields(line)[4], "/data") &&
				!slices.Contains(options, "nodev") {
				t.Errorf("mount %s", line)
			}
		}
	}
	if seen == 0 || serving != 1 {
		t.Errorf("got %d processes, %d with a system call filter, want one with it", seen, serving)
	}
}

// A sandbox outlives the server that created it, so later servers read its record.
func TestRecordOfMounts(t *testing.T) {
	const text = `{"boot_id":"b","image":"/i","uid":7,"limits":{"Memory":1,"CPU":2,"PIDs":3,"Disk":4},"mounts":[{"Name":"data","Source":"/v","ReadOnly":true}],"share":9}`
	var rec record
	if err := json.Unmarshal([]byte(text), &rec); err != nil {
		t.Fatal(err)
	}
	if want := mountRecords([]sandbox.Mount{{Name: "data", Volume: "vol_1", Path: "/v",
		ReadOnly: true}}); !slices.Equal(rec.Mounts, want) {
		t.Errorf("got %+v, want %+v", rec.Mounts, want)
	}
	if raw, err := json.Marshal(rec); err != nil || string(raw) != text {
		t.Errorf("got %s, %v, want %s", raw, err, text)
	}
}
