package e2e

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-run/berth/internal/longtest"
)

// demoUser is the account that the test makes and removes.
const demoUser = "berth-e2e-demo"

// TestDemoAsUser runs make demo as an ordinary user with subordinate ids, from the base template that
// this user builds to the reports. Without these ids it says in one line what to do.
func TestDemoAsUser(t *testing.T) {
	longtest.Skip(t)
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can become another user")
	}
	for _, program := range []string{"useradd", "newuidmap", "mmdebstrap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	home, err := os.MkdirTemp("/var/tmp", "berth-demo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	_ = exec.Command("userdel", demoUser).Run() // of a killed test
	if out, err := exec.Command("useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh",
		demoUser).CombinedOutput(); err != nil {
		t.Fatalf("useradd: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("userdel", demoUser).CombinedOutput(); err != nil {
			t.Errorf("userdel: %v: %s", err, out)
		}
	})
	account, err := user.Lookup(demoUser)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(account.Uid)
	gid, gerr := strconv.Atoi(account.Gid)
	if err := errors.Join(err, gerr); err != nil {
		t.Fatal(err)
	}
	clone := filepath.Join(home, "berth")
	for _, step := range [][]string{
		{"mkdir", "-p", clone + "/bin"},
		{"cp", "-r", "../scripts", "../demo", "../docs", clone},
		{"cp", binary(t), clone + "/bin/berth"},
		{"chown", "-R", account.Uid + ":" + account.Gid, home},
		{"chmod", "0700", home},
	} {
		if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", step, err, out)
		}
	}
	demo := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), clone+"/scripts/demo")
		cmd.Dir = clone
		cmd.Env = append(os.Environ(), "BERTH_DEMO_BIN=bin", "HOME="+home, "USER="+demoUser, "BERTH_STATE=",
			"BERTH_GUEST=", "BERTH_RUNSC=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
			Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := demo()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out[strings.LastIndex(out, "Where time went"):])
	for _, name := range []string{"report.html", "chart.png", "weather.png", "monthly.csv"} {
		if !exists(clone, "demo-out", name) {
			t.Errorf("the demo has not made %s:\n%s", name, out)
		}
	}
	if out, err := exec.Command("usermod", "--del-subuids", "1-4000000000", "--del-subgids", "1-4000000000",
		demoUser).CombinedOutput(); err != nil {
		t.Fatalf("usermod: %v: %s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(clone, ".demo-state")); err != nil {
		t.Fatal(err)
	}
	out, err = demo()
	if lines := strings.Split(strings.TrimSpace(out), "\n"); err == nil || !strings.Contains(lines[len(lines)-1],
		"as root, run usermod --add-subuids ") {
		t.Errorf("without subordinate ids: got %v\n%s", err, out)
	}
}
