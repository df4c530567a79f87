package webhook

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-run/berth"
)

// An endpoint of a project cannot reach this machine at its own public address. A
// firewall would not see such a connection.
func TestOwnPublicAddress(t *testing.T) {
	const variable, own = "BERTH_TEST_OWN_NETWORK", "8.8.4.4"
	if os.Getenv(variable) == "" {
		if os.Geteuid() != 0 {
			t.Skip("skipped: only root can create a network namespace")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Error(err)
		}
		return
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("skipped: iproute2 is not installed")
	}
	if out, err := exec.Command(ip, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(ip, "addr", "add", own+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h := newHouse(t)
	connected := make(chan struct{}, 10)
	l, err := net.Listen("tcp", own+":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(h.serve))
	srv.Listener.Close()
	srv.Listener = l
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connected <- struct{}{}
		}
	}
	srv.StartTLS()
	defer srv.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{own, "[::ffff:" + own + "]"} {
		url := fmt.Sprintf("https://%s:%s/", host, port)
		if _, err := h.svc.Create(t.Context(), mine, EndpointRequest{URL: &url,
			EventTypes: EventTypes}); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v, want a refusal", host, err)
		}
		if status, err := h.svc.Test(t.Context(), mine, h.stored(url), berth.EventCompleted); status != 0 ||
			err == nil || strings.Contains(err.Error(), "not public") {
			t.Errorf("%s: got %d, %v, want an error that it could not be reached", host, status, err)
		}
	}
	if len(connected) != 0 {
		t.Errorf("got %d connections to this machine, want 0", len(connected))
	}
}
