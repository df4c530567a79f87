package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var sshAddress = regexp.MustCompile(`"?serving SSH"? address=(\S+)`)

// An sshClient is OpenSSH's own client for one container.
type sshClient struct {
	t         *testing.T
	dir, port string
	options   []string
}

// newSSHClient returns a client with a key of its own, which the server does not know yet.
func newSSHClient(t *testing.T, s *server) *sshClient {
	t.Helper()
	for _, name := range []string{"ssh", "scp", "sftp", "ssh-keygen"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s: install openssh-client", name)
		}
	}
	match := sshAddress.FindStringSubmatch(s.log.String())
	if match == nil {
		t.Fatalf("the server does not say where it serves SSH:\n%s", s.log.String())
	}
	_, port, err := net.SplitHostPort(match[1])
	if err != nil {
		t.Fatal(err)
	}
	c := &sshClient{t: t, dir: t.TempDir(), port: port}
	c.options = []string{"-F", "none", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile=" + filepath.Join(c.dir, "known_hosts"), "-o", "BatchMode=yes",
		"-o", "IdentityAgent=none", "-o", "IdentitiesOnly=yes", "-o", "IdentityFile=" + c.file("key"), "-o", "Port=" + port}
	c.local("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@laptop", "-f", c.file("key"))
	return c
}

func (c *sshClient) file(name string) string { return filepath.Join(c.dir, name) }

// local runs a program, and returns its output.
func (c *sshClient) local(name string, args ...string) string {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), name, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// command returns a command of OpenSSH with the options of the client.
func (c *sshClient) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), name, append(append([]string{}, c.options...), args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// ssh runs a command in a container, and returns its output and exit code.
func (c *sshClient) ssh(in string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	cmd := c.command("ssh", args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestSSH uses a gVisor sandbox with OpenSSH's own clients.
func TestSSH(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca).CombinedOutput(); err != nil {
		t.Skipf("ssh-keygen: %v %s", err, out)
	}
	authority, err := os.ReadFile(ca + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	s := newServerWith(t, fmt.Sprintf("ssh:\n  listen: 127.0.0.1:0\n  authorities:\n    - {key: %q, projects: [proj_default]}\n",
		strings.TrimSpace(string(authority))))
	s.key = s.createKey()
	viewer := s.createKey("--role", "viewer")
	tools := s.createKey("--tool", "web_search")
	id, errs, err := s.berth("create", "--name", "box")
	if err != nil {
		t.Fatalf("create: %v %s", err, errs)
	}
	id = strings.TrimSpace(id)
	c := newSSHClient(t, s)
	if _, _, code := c.ssh("", "box@127.0.0.1", "true"); code != 255 {
		t.Errorf("an unknown key: exit code %d, want 255", code)
	}
	keyID, errs, err := s.berth("ssh-key", "add", c.file("key.pub"))
	if err != nil {
		t.Fatalf("ssh-key add: %v %s", err, errs)
	}
	if list, _, err := s.berth("ssh-key", "ls"); err != nil || !strings.Contains(list, "me@laptop") {
		t.Errorf("ssh-key ls: %v\n%s", err, list)
	}

	t.Run("exec", func(t *testing.T) {
		for _, test := range []struct {
			in, user, command, out, errs string
			code                         int
		}{
			{"", "box", "echo hello; echo oops >&2; exit 3", "hello\n", "oops\n", 3},
			{"from here", id, "cat", "from here", "", 0},
			{strings.Repeat("x", 3<<20), "box", "wc -c", "3145728\n", "", 0},
			{"", "box", "no-such-command", "", "not found", 127},
			{"", "box", "kill -TERM $$", "", "", 255}, // as OpenSSH reports a signal
			{"", "other", "true", "", `There is no running container "other"`, 255},
		} {
			out, errs, code := c.ssh(test.in, test.user+"@127.0.0.1", test.command)
			if out != test.out || !strings.Contains(errs, test.errs) || code != test.code {
				t.Errorf("%s: got %q, %q, %d", test.command, out, errs, code)
			}
		}
	})
	t.Run("terminal", func(t *testing.T) {
		out, errs, code := c.ssh("tty && echo size: $(stty size); exit 4\n", "-tt", "box@127.0.0.1")
		if !strings.Contains(out, "/dev/pts/") || !strings.Contains(out, "size: ") || code != 4 {
			t.Errorf("got %q, %q, %d", out, errs, code)
		}
	})
	t.Run("files", func(t *testing.T) {
		tree := c.file("tree")
		if err := os.MkdirAll(filepath.Join(tree, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
		for name, text := range map[string][]byte{"a.txt": []byte("a"), "below/large": large} {
			if err := os.WriteFile(filepath.Join(tree, name), text, 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := c.command("scp", "-r", "-q", tree, "box@127.0.0.1:copy").CombinedOutput(); err != nil {
			t.Fatalf("scp: %v\n%s", err, out)
		}
		if out, err := c.command("scp", "-r", "-q", "box@127.0.0.1:copy", c.file("back")).CombinedOutput(); err != nil {
			t.Fatalf("scp back: %v\n%s", err, out)
		}
		if got, err := os.ReadFile(c.file("back/below/large")); err != nil || !bytes.Equal(got, large) {
			t.Errorf("the file came back as %d bytes, %v", len(got), err)
		}
		cmd := c.command("sftp", "-b", "-", "box@127.0.0.1")
		cmd.Stdin = strings.NewReader("mkdir made\nrename copy/a.txt made/b.txt\nsymlink b.txt made/link\nchmod 600 made/b.txt\nls -l made\n")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "-rw-------") || !strings.Contains(string(out), "link") {
			t.Errorf("sftp: %v\n%s", err, out)
		}
	})
	t.Run("local forwarding", func(t *testing.T) {
		if _, errs, code := c.ssh("", "box@127.0.0.1",
			"cd /mnt/data && echo served > index.html && (nohup python3 -m http.server 8123 >/dev/null 2>&1 &)"); code != 0 {
			t.Fatalf("start: %d %s", code, errs)
		}
		s.waitUntil("the container serves", func() bool {
			out, _, code := c.ssh("GET /index.html HTTP/1.0\r\n\r\n", "-W", "localhost:8123", "box@127.0.0.1")
			return code == 0 && strings.HasSuffix(out, "served\n")
		})
		if _, errs, code := c.ssh("", "-W", "192.0.2.1:80", "box@127.0.0.1"); code == 0 || !strings.Contains(errs, "prohibited") {
			t.Errorf("another host: %d %s", code, errs)
		}
	})
	t.Run("remote forwarding", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_, _ = io.Copy(conn, conn)
				}()
			}
		}()
		script := `python3 -c '
import socket
s = socket.create_connection(("127.0.0.1", 9555)); s.sendall(b"there and back"); s.shutdown(1)
print(s.makefile().read())'`
		forwarded := func(user string) (string, string, int) {
			return c.ssh("", "-o", "ExitOnForwardFailure=yes", "-R", "9555:"+l.Addr().String(), user+"@127.0.0.1", script)
		}
		if out, errs, code := forwarded("box"); code != 255 || !strings.Contains(errs, "remote port forwarding failed") {
			t.Errorf("a container without network: got %q, %q, %d, want a refusal", out, errs, code)
		}
		if _, errs, err := s.berth("create", "--name", "outside", "--open-network"); err != nil {
			t.Fatalf("create: %v %s", err, errs)
		}
		if out, errs, code := forwarded("outside"); out != "there and back\n" || code != 0 {
			t.Errorf("got %q, %q, %d", out, errs, code)
		}
	})
	t.Run("rsync", func(t *testing.T) {
		if _, err := exec.LookPath("rsync"); err != nil {
			t.Skip("no rsync here")
		}
		if _, _, code := c.ssh("", "box@127.0.0.1", "command -v rsync"); code != 0 {
			c.sendRsync()
		}
		shell := "ssh " + strings.Join(c.options, " ")
		cmd := exec.CommandContext(t.Context(), "rsync", "-a", "--delete", "-e", shell, "--rsync-path",
			"PATH=$PATH:/mnt/data/rsync rsync", c.file("tree")+"/", "box@127.0.0.1:synced/")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("rsync: %v\n%s", err, out)
		}
		if out, _, _ := c.ssh("", "box@127.0.0.1", "stat -c %s synced/below/large"); out != "2097152\n" {
			t.Errorf("the file has %q bytes", out)
		}
	})
	t.Run("over https", func(t *testing.T) {
		proxy := "ProxyCommand=" + binary(t) + " ssh-proxy %h"
		cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-o", proxy, "-o", "HostKeyAlias=[127.0.0.1]:"+c.port,
			"-o", "UserKnownHostsFile="+c.file("known_hosts"), "-o", "BatchMode=yes", "-o", "IdentityAgent=none",
			"box.berth", "echo through; exit 5")
		cmd.Env = append(os.Environ(), "BERTH_URL="+s.url, "BERTH_API_KEY="+s.key)
		out, err := cmd.CombinedOutput()
		if string(out) != "through\n" || cmd.ProcessState.ExitCode() != 5 { // the listener's host key, which is known
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("certificate", func(t *testing.T) {
		c.local("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", c.file("cert"))
		sign := func(args ...string) (string, int) {
			c.local("ssh-keygen", append(append([]string{"-q", "-s", ca, "-I", "alice"}, args...), c.file("cert.pub"))...)
			cmd := exec.CommandContext(t.Context(), "ssh", append(c.options[:len(c.options):len(c.options)], "-i", c.file("cert"),
				"-o", "IdentityFile=none", "box@127.0.0.1", "echo certified")...)
			cmd.Args = without(cmd.Args, "IdentityFile="+c.file("key"))
			out, _ := cmd.Output()
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, code := sign("-n", "proj_default", "-V", "+1h"); out != "certified\n" || code != 0 {
			t.Errorf("got %q, %d", out, code)
		}
		for _, args := range [][]string{{"-n", "proj_other", "-V", "+1h"}, {"-V", "+1h"}, {"-n", "proj_default", "-V", "-2h:-1h"},
			{"-n", "proj_default"}, {"-n", "proj_default", "-V", "+1h", "-O", "force-command=id"},
			{"-n", "proj_default", "-V", "+1h", "-O", "source-address=192.0.2.0/24"}, {"-h", "-n", "proj_default", "-V", "+1h"}} {
			if out, code := sign(args...); code != 255 {
				t.Errorf("%q: got %q, %d, want a refusal", args, out, code)
			}
		}
	})
	t.Run("password", func(t *testing.T) {
		for key, want := range map[string]int{s.key: 0, viewer: 255, tools: 255, "sk-berth-wrong": 255} {
			cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-p", c.port, "-o", "UserKnownHostsFile="+c.file("known_hosts"),
				"-o", "PreferredAuthentications=password", "-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1",
				"box@127.0.0.1", "true")
			cmd.Env = append(os.Environ(), "SSH_ASKPASS="+c.askPass(key), "SSH_ASKPASS_REQUIRE=force")
			if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != want {
				t.Errorf("key …%s: got %d, want %d\n%s", key[len(key)-4:], cmd.ProcessState.ExitCode(), want, out)
			}
		}
	})
	t.Run("revoked", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := c.command("ssh", "box@127.0.0.1", "echo ready; sleep 600")
		cmd.Cancel = cmd.Process.Kill
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if _, errs, err := s.berth("ssh-key", "rm", strings.TrimSpace(keyID)); err != nil {
			t.Fatalf("ssh-key rm: %v %s", err, errs)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 255 || ctx.Err() != nil {
			t.Errorf("the session ended with %v, want a closed connection", err)
		}
		s.waitUntil("the process has ended", func() bool {
			out, _, err := s.berth("exec", id, "--", "sh", "-c", "pgrep -x sleep || true")
			return err == nil && out == ""
		})
	})
}

// without returns a command line without an option and its flag.
func without(args []string, option string) []string {
	for i, a := range args {
		if a == option {
			return append(args[:i-1:i-1], args[i+1:]...)
		}
	}
	return args
}

// askPass returns a program that prints a password.
func (c *sshClient) askPass(secret string) string {
	path := c.file("askpass")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+secret+"'\n"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// sendRsync copies this machine's rsync with its libraries to a container, whose template has none.
func (c *sshClient) sendRsync() {
	c.t.Helper()
	path, err := exec.LookPath("rsync")
	if err != nil {
		c.t.Fatal(err)
	}
	dir := c.file("rsync")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	c.local("cp", path, filepath.Join(dir, "rsync.bin"))
	for _, line := range strings.Split(c.local("ldd", path), "\n") {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") && !strings.Contains(word, "ld-linux") {
				c.local("cp", "-L", word, dir)
			}
		}
	}
	script := "#!/bin/sh\nLD_LIBRARY_PATH=/mnt/data/rsync exec /mnt/data/rsync/rsync.bin \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "rsync"), []byte(script), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if out, err := c.command("scp", "-r", "-q", "-p", dir, "box@127.0.0.1:/mnt/data/rsync").CombinedOutput(); err != nil {
		c.t.Fatalf("scp: %v\n%s", err, out)
	}
}
