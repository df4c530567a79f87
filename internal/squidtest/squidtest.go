// Package squidtest starts squid, a proxy for HTTP, for tests.
package squidtest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/freeport"
)

// The credentials that a proxy requires.
const (
	User     = "berth"
	Password = "the-password-of-the-proxy"
)

// A Proxy is a running squid.
type Proxy struct {
	Addr string
	dir  string
	cmd  *exec.Cmd
}

const config = `http_port %[2]s
pid_filename none
cache_effective_user proxy
coredump_dir %[1]s
access_log stdio:%[1]s/access.log
cache_log %[1]s/cache.log
cache deny all
hosts_file %[1]s/hosts
dns_nameservers 127.0.0.1
dns_timeout 1 second
shutdown_lifetime 0 seconds
logfile_rotate 0
pinger_enable off
buffered_logs off
auth_param basic program /bin/sh %[1]s/auth
auth_param basic children 2 startup=1
acl known proxy_auth REQUIRED
acl secure port 443
acl plain port 80
acl CONNECT method CONNECT
http_access deny CONNECT !secure
http_access deny !CONNECT !plain
http_access allow known
http_access deny all
`

const auth = `while read -r user password; do
	if [ "$user $password" = '` + User + " " + Password + `' ]; then echo OK; else echo ERR; fi
done
`

// Start starts squid on an address; empty is one of the loopback. It ends with the test. hosts are the names that it
// knows, with their addresses. Like many proxies of companies, it lets CONNECT to port 443 and
// plain requests to port 80 through, with a password, and nothing else. Start skips the test if there is no squid.
func Start(tb testing.TB, addr string, hosts map[string]string) *Proxy {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("squid's programs need root here")
	}
	squid, err := exec.LookPath("squid")
	if err != nil {
		tb.Skip("no squid: run scripts/setup test")
	}
	if addr == "" {
		addr = freeport.Addr(tb)
	}
	user, err := user.Lookup("proxy") // squid refuses to run as root
	if err != nil {
		tb.Skip(err)
	}
	dir, err := os.MkdirTemp("", "squid")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	uid, _ := strconv.Atoi(user.Uid)
	gid, _ := strconv.Atoi(user.Gid)
	p := &Proxy{Addr: addr, dir: dir}
	var known strings.Builder
	for name, to := range hosts {
		fmt.Fprintln(&known, to, name)
	}
	for name, text := range map[string]string{"squid.conf": fmt.Sprintf(config, p.dir, addr),
		"auth": auth, "hosts": known.String()} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := os.Chown(filepath.Join(p.dir, name), uid, gid); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Chown(p.dir, uid, gid); err != nil {
		tb.Fatal(err)
	}
	p.cmd = exec.Command(squid, "-N", "-n", "berth"+filepath.Base(p.dir), "-f", filepath.Join(p.dir, "squid.conf"))
	p.cmd.Stdout, p.cmd.Stderr = tb.Output(), tb.Output()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Stop)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) { // squid tells nobody that it listens
		resp, err := client.Get("http://" + addr + "/squid-internal-mgr/none")
		if err == nil {
			resp.Body.Close()
			return p
		}
		if time.Since(begun) > time.Minute {
			tb.Fatalf("squid does not listen: %v\n%s", err, p.read("cache.log"))
		}
	}
}

// Stop ends squid with all of its connections.
func (p *Proxy) Stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// Log returns squid's log of requests.
func (p *Proxy) Log() string { return p.read("access.log") }

func (p *Proxy) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(p.dir, name))
	return string(text)
}

// Port returns the port on which squid listens.
func (p *Proxy) Port() string {
	_, port, _ := net.SplitHostPort(p.Addr)
	return port
}
