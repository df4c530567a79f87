package drivertest

import (
	_ "embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// attacks runs hostile commands in a sandbox. Each must fail harmlessly: the host, the template
// and another sandbox are unchanged.
type attacks struct{ *suite }

func (s attacks) all(t *testing.T) {
	s.run(t, "ReadHost", s.readHost)
	s.run(t, "ReachHost", s.reachHost)
	s.run(t, "TakePowers", s.takePowers)
	s.run(t, "FloodOutput", s.floodOutput)
	s.run(t, "FloodFiles", s.floodFiles)
	s.run(t, "DeleteEverything", s.deleteEverything)
	s.run(t, "WriteTemplate", s.writeTemplate)
	s.run(t, "ReplaceSocket", s.replaceSocket)
	s.run(t, "FillSocketDirectory", s.fillSocketDirectory)
}

//go:embed reach.py
var reachScript string

// canary is a text of the host that no sandbox may see.
const canary = "berth-canary-5f0c1d"

// readHost searches for files, processes and variables of the host.
func (s attacks) readHost(t *testing.T) {
	t.Setenv("BERTH_TEST_SECRET", canary)
	secret := filepath.Join(t.TempDir(), "secret-"+canary)
	if err := os.WriteFile(secret, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	b := Start(t, s.open(t), sandbox.Spec{ID: "reader", Template: s.Template})
	for _, script := range []string{
		"sudo cat " + secret,
		"sudo cat /proc/1/root" + secret,
		"sudo cat /proc/self/cwd/../../../../../../../.." + secret,
		"sudo find / -xdev -name 'secret-*' -exec cat {} +",
		"sudo sh -c 'cat /proc/*/environ /proc/*/cmdline'",
		"sudo sh -c 'cat /proc/1/mountinfo /proc/mounts /etc/hosts /etc/resolv.conf /etc/hostname'",
		"sudo sh -c 'ls -la /proc/*/fd /proc/*/cwd /proc/*/root /.berth'",
		"env; sudo env",
		"mkdir -p m; for d in vda sda nvme0n1 dm-0; do sudo mknod $d b 254 0; sudo mount $d m; sudo head -c 64M $d; done",
		"sudo dmesg",
	} {
		r := b.ShTimeout(s.asRoot(script), 20*time.Second)
		if strings.Contains(r.Stdout+r.Stderr, canary) && !strings.Contains(script, canary) {
			t.Errorf("%s: saw the host's canary", script)
		}
		if strings.Contains(script, canary) && strings.Contains(r.Stdout, canary) {
			t.Errorf("%s: read the host's file", script)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Must("uname -n"); got == host {
		t.Errorf("host name: got the host's, %q", got)
	}
	// Only the guest and the processes of this command exist.
	if got := b.Must("ls -d /proc/[0-9]* | wc -l"); len(got) > 1 {
		t.Errorf("processes: got %s, want a few", got)
	}
	if boot, err := sandbox.BootID(); err == nil && !s.BootID &&
		strings.Contains(b.Sh("cat /proc/sys/kernel/random/boot_id").Stdout, boot) {
		t.Error("boot id: got the host's")
	}
}

// reachHost connects to addresses that may listen outside of the sandbox.
func (s attacks) reachHost(t *testing.T) {
	if s.features.Network {
		t.Skip("skipped: sandboxes of this driver have a network")
	}
	var listeners []net.Listener
	listen := func(network, address string) net.Listener {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		listeners = append(listeners, l)
		return l
	}
	tcp := listen("tcp", "0.0.0.0:0").Addr().(*net.TCPAddr)
	unixPath := filepath.Join(t.TempDir(), "host.sock")
	listen("unix", unixPath)
	if err := os.Chmod(unixPath, 0o777); err != nil {
		t.Fatal(err)
	}
	abstract := fmt.Sprintf("@berth-test-%d", os.Getpid())
	listen("unix", abstract)

	targets := []string{"127.0.0.1", "0.0.0.0", "169.254.169.254", "10.0.0.1", "172.17.0.1", "192.168.0.1", "1.1.1.1",
		"::1", "fe80::1", "2606:4700:4700::1111"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			targets = append(targets, n.IP.String())
		}
	}
	b := Start(t, s.open(t), sandbox.Spec{ID: "caller", Template: s.Template})
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "reach.py", "", strings.NewReader(reachScript)); err != nil {
		t.Fatal(err)
	}
	args := fmt.Sprintf("reach.py %d %s %s %s", tcp.Port, unixPath, abstract[1:], strings.Join(targets, " "))
	answers := ""
	if len(s.Interfaces) > 0 {
		answers = "env ANSWERS=1 "
	}
	for _, who := range s.users() {
		if r := b.Sh(who + answers + "python3 " + args); r.Stdout != "done\n" {
			t.Errorf("%spython3 %s: got %+v, want only %q", who, args, r, "done\n")
		}
	}
	got := strings.Fields(b.Must("tail -n +3 /proc/net/dev | cut -d: -f1"))
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(append([]string{"lo"}, s.Interfaces...))); !slices.Equal(got, want) {
		t.Errorf("network interfaces: got %q, want %q", got, want)
	}
	for _, l := range listeners {
		l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(50 * time.Millisecond))
		if conn, err := l.Accept(); err == nil {
			conn.Close()
			t.Errorf("%s was reached from the sandbox", l.Addr())
		}
	}
}

// floodOutput prints without end.
func (s attacks) floodOutput(t *testing.T) {
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "flood", Template: s.Template,
		Limits: sandbox.Limits{Disk: 512 << 20, Memory: 512 << 20}})
	for _, script := range []string{
		"yes",
		"cat /dev/zero",
		"yes >&2",
		`head -c 100000000 /dev/zero | tr '\0' '\n'`,
		"sudo sh -c 'yes >/proc/1/fd/1'",
		"sudo sh -c 'yes >/proc/1/fd/2'",
	} {
		r := b.ShTimeout(s.asRoot(script), 2*time.Second)
		if r.Err != nil {
			t.Errorf("%s: got %v", script, r.Err)
		}
		b.Answers()
	}
}

// deleteEverything removes all files that root in the sandbox can remove.
func (s attacks) deleteEverything(t *testing.T) {
	before := listing(t, s.Template.Path)
	d := s.open(t)
	other := Start(t, d, sandbox.Spec{ID: "other", Template: s.Template})
	other.Must("echo mine >file")
	b := Start(t, d, sandbox.Spec{ID: "vandal", Template: s.Template})
	b.Last(s.asRoot(
		"sudo rm -rf --no-preserve-root / 2>/dev/null; sudo rm -rf /.berth /mnt /tmp /usr /etc /dev /proc 2>/dev/null"))

	if st := b.Stats(); st.State != sandbox.StateRunning && st.State != sandbox.StateDead {
		t.Errorf("state after the deletion: got %+v, want running or dead", st)
	}
	if diff := diffListings(before, listing(t, s.Template.Path)); diff != "" {
		t.Errorf("the template has changed:\n%s", diff)
	}
	if got := other.Must("cat file && ls -d /usr/bin/env"); got != "mine\n/usr/bin/env" {
		t.Errorf("the other sandbox: got %q", got)
	}
	if err := d.Destroy(t.Context(), "vandal"); err != nil {
		t.Errorf("Destroy: %v", err)
	}
	// A new sandbox from the same template is complete.
	Start(t, d, sandbox.Spec{ID: "next", Template: s.Template}).Must(s.asRoot("python3 -c 'print(1)' && sudo true"))
}

// writeTemplate tries to change files of the template in every possible way.
func (s attacks) writeTemplate(t *testing.T) {
	before := listing(t, s.Template.Path)
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "writer", Template: s.Template})
	r := b.Sh(s.asRoot(`sudo sh -c 'echo x >>/etc/passwd; chmod 000 /etc/shadow; chown 1000 /usr/bin/env; mv /usr/bin/tac /usr/bin/tac2
ln -s / /etc/root; rm -f /etc/group; mkdir /newdir; touch /usr/bin/env; mknod /etc/null c 1 3; : >/etc/profile'`))
	if (r.Code != 0) != s.features.NoRoot {
		t.Errorf("got %+v, but NoRoot is %v", r, s.features.NoRoot)
	}
	if diff := diffListings(before, listing(t, s.Template.Path)); diff != "" {
		t.Errorf("the template has changed:\n%s", diff)
	}
	Start(t, d, sandbox.Spec{ID: "reader",
		Template: s.Template}).Must("! grep -x x /etc/passwd && test ! -e /newdir && test -s /etc/profile")
}

// listing returns a line for each file of a tree with its metadata and time.
func listing(t *testing.T, root string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		files[path] = fmt.Sprint(fi.Mode(), fi.Size(), fi.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// diffListings returns a few of the files that differ.
func diffListings(before, after map[string]string) string {
	var diff []string
	for path, was := range before {
		if is := after[path]; is != was {
			diff = append(diff, fmt.Sprintf("%s: was %q, is %q", path, was, is))
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !ok {
			diff = append(diff, fmt.Sprintf("%s: is new, %q", path, is))
		}
	}
	return strings.Join(diff[:min(len(diff), 10)], "\n")
}
