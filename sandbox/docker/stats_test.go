package docker

import (
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/berth-run/berth/sandbox"
)

func TestStateOf(t *testing.T) {
	for _, tt := range []struct {
		state  container.State
		want   sandbox.State
		reason sandbox.Reason
	}{
		{container.State{Status: "created"}, sandbox.StateCreated, ""},
		{container.State{Status: "created", Error: "no such file"}, sandbox.StateDead, sandbox.ReasonKilled},
		{container.State{Status: "running"}, sandbox.StateRunning, ""},
		{container.State{Status: "running", OOMKilled: true}, sandbox.StateRunning, ""},
		{container.State{Status: "paused"}, sandbox.StatePaused, ""},
		{container.State{Status: "exited", ExitCode: 137}, sandbox.StateDead, sandbox.ReasonKilled},
		{container.State{Status: "exited", ExitCode: 137, OOMKilled: true}, sandbox.StateDead, sandbox.ReasonOOM},
		{container.State{Status: "exited", ExitCode: 255}, sandbox.StateDead, sandbox.ReasonHost},
		{container.State{Status: "dead"}, sandbox.StateDead, sandbox.ReasonKilled},
	} {
		if got, err := stateOf(&tt.state); err != nil || got.State != tt.want || got.Reason != tt.reason {
			t.Errorf("%+v: got %+v, %v, want %s %s", tt.state, got, err, tt.want, tt.reason)
		}
	}
	for _, status := range []container.ContainerState{"", "restarting", "stopping"} {
		if got, err := stateOf(&container.State{Status: status}); err == nil {
			t.Errorf("%q: got %+v, want an error", status, got)
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
