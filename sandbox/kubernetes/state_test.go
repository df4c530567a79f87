package kubernetes

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// The state of a Pod, as API servers report it, becomes the state of its sandbox.
func TestState(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, pod string
		state     sandbox.State
		reason    sandbox.Reason
		detail    string
	}{
		{"created", `{"spec": {"schedulingGates": [{"name": "run.berth/start"}]}, "status": {"phase": "Pending"}}`,
			sandbox.StateCreated, "", ""},
		{"starting",
			`{"status": {"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state": {"waiting": {"reason": "ContainerCreating"}}}]}}`,
			sandbox.StateRunning, "", ""},
		{"running", `{"status": {"phase": "Running", "containerStatuses": [{"name": "sandbox", "state": {"running": {}}}]}}`,
			sandbox.StateRunning, "", ""},
		{"being deleted", `{"metadata": {"deletionTimestamp": "2026-01-01T11:59:59Z"}, "status": {"phase": "Running",
			"containerStatuses": [{"name": "sandbox", "state": {"running": {}}}]}}`, sandbox.StateRunning, "", ""},
		{"not deleted in time",
			`{"metadata": {"deletionTimestamp": "2026-01-01T11:50:00Z"}, "status": {"phase": "Running"}}`,
			sandbox.StateDead, sandbox.ReasonHost, "its node does not confirm its end"},
		{"out of memory",
			`{"status": {"phase": "Failed", "containerStatuses": [{"name": "sandbox", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}`,
			sandbox.StateDead, sandbox.ReasonOOM, "a process reached the memory limit"},
		{"killed", `{"status": {"phase": "Failed", "containerStatuses": [{"name": "sandbox", "state": {"terminated": {"exitCode": 137, "reason": "Error", "message": "bad\u001b[31m\nend"}}}]}}`,
			sandbox.StateDead, sandbox.ReasonKilled,
			"its first process ended with exit code 137; its log: bad [31m end"},
		{"evicted", `{"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
			"containerStatuses": [{"name": "sandbox", "state": {"terminated": {"exitCode": 137}}}]}}`,
			sandbox.StateDead, sandbox.ReasonEvicted, "evicted: The node was low on resource: memory."},
		{"node lost", `{"metadata": {"deletionTimestamp": "2026-01-01T11:59:59Z"}, "status": {"phase": "Running", "conditions": [
			{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}],
			"containerStatuses": [{"name": "sandbox", "state": {"running": {}}}]}}`,
			sandbox.StateDead, sandbox.ReasonHost,
			"DeletionByTaintManager: Taint manager: deleting due to NoExecute taint"},
		{"drained, still running", `{"metadata": {"deletionTimestamp": "2026-01-01T11:59:59Z"}, "status": {"phase": "Running", "conditions": [
			{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}], "containerStatuses": [{"name": "sandbox", "state": {"running": {}}}]}}`,
			sandbox.StateRunning, "", ""},
		{"no image",
			`{"status": {"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]}}`,
			sandbox.StateDead, sandbox.ReasonHost, "ImagePullBackOff: not found"},
		{"refused by the node",
			`{"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource"}}`,
			sandbox.StateDead, sandbox.ReasonHost, "OutOfcpu: Node didn't have enough resource"},
	} {
		p := &pod{}
		if err := json.Unmarshal([]byte(tt.pod), p); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		state, e, err := stateOf(p, now)
		if state != tt.state || e.reason != tt.reason || e.detail != tt.detail || err != nil {
			t.Errorf("%s: got %q, %+v, %v, want %q, %q, %q", tt.name, state, e, err, tt.state, tt.reason, tt.detail)
		}
	}
	if _, _, err := stateOf(&pod{Status: podStatus{Phase: "Unknown"}}, now); err == nil {
		t.Error("an unknown phase: got no error")
	}
}

// Only the API server's own words prove that a Pod does not exist.
func TestMissing(t *testing.T) {
	for text, want := range map[string]bool{
		`{"kind": "Status", "status": "Failure", "reason": "NotFound", "details": {"name": "berth-x", "kind": "pods"}, "code": 404}`: true,
		// no such path
		`{"kind": "Status", "status": "Failure", "reason": "NotFound", "details": {}, "code": 404}`: false,
		`{}`: false, // a proxy
		`{"kind": "Status", "status": "Failure", "reason": "Forbidden", "details": {"name": "berth-x"}, "code": 403}`: false,
	} {
		e := &apiError{}
		if err := json.Unmarshal([]byte(text), &e.status); err != nil {
			t.Fatal(err)
		}
		if e.Code == 0 {
			e.Code = 404
		}
		if got := isMissing(e); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// The ends of Pods that the driver deleted are not recorded, however late the cluster reports them.
func TestDeleted(t *testing.T) {
	var d deletions
	d.expect("1")
	d.forget("a")
	d.add("a", "1", end{reason: sandbox.ReasonKilled})
	if e, ok := d.end("a"); ok {
		t.Errorf("the driver's own deletion: got %+v", e)
	}
	d.add("a", "2", end{reason: sandbox.ReasonEvicted})
	if e, ok := d.end("a"); !ok || e.reason != sandbox.ReasonEvicted {
		t.Errorf("got %+v, %v", e, ok)
	}
	d.forget("a")
	if e, ok := d.end("a"); ok {
		t.Errorf("afterwards: got %+v", e)
	}
}
