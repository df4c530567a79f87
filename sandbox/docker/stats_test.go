package docker

import (
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/berth-run/berth/sandbox/driver"
)

func TestStateOf(t *testing.T) {
	for _, tt := range []struct {
		state  container.State
		want   driver.State
		reason driver.Reason
	}{
		{container.State{Status: "created"}, driver.StateCreated, ""},
		{container.State{Status: "created", Error: "no such file"}, driver.StateDead, driver.ReasonKilled},
		{container.State{Status: "running"}, driver.StateRunning, ""},
		{container.State{Status: "running", OOMKilled: true}, driver.StateRunning, ""},
		{container.State{Status: "paused"}, driver.StatePaused, ""},
		{container.State{Status: "exited", ExitCode: 137}, driver.StateDead, driver.ReasonKilled},
		{container.State{Status: "exited", ExitCode: 137, OOMKilled: true}, driver.StateDead, driver.ReasonOOM},
		{container.State{Status: "exited", ExitCode: 255}, driver.StateDead, driver.ReasonHost},
		{container.State{Status: "dead"}, driver.StateDead, driver.ReasonKilled},
	} {
		if got, err := stateOf(&tt.state); err != nil || got.State != tt.want || got.Reason != tt.reason {
			t.Errorf("%+v: got %+v, %v, want %s %s", tt.state, got, err, tt.want, tt.reason)
		}
	}
	for _, status := range []container.ContainerState{"", "restarting", "stopping"} {
		if got, err := stateOf(&container.State{Status: status}); err == nil {
			t.Errorf("%q: got %+v, want that it is not known", status, got)
		}
	}
}

func TestIsolation(t *testing.T) {
	for _, tt := range []struct{ name, program, want string }{
		{"runc", "runc", "docker"},
		{"runc", "/usr/bin/runc", "docker"},
		{"crun", "/usr/bin/crun", "docker"},
		{"sysbox-runc", "/usr/bin/sysbox-runc", "docker"},
		{"runsc", "/usr/local/bin/runsc", "gvisor"},
		{"walled", "/opt/berth-runsc", "gvisor"},
		{"kata", "/opt/kata/bin/kata-runtime", "microvm"},
		{"io.containerd.kata.v2", "", "microvm"},
		{"io.containerd.runsc.v1", "", "gvisor"},
	} {
		if got := isolation(tt.name, tt.program); got != tt.want {
			t.Errorf("isolation(%q, %q): got %q, want %q", tt.name, tt.program, got, tt.want)
		}
	}
}
