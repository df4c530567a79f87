package kubernetes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

// Whatever a sandbox's environment says, the guest filters system calls, and Kubernetes replaces nothing in it. No
// Pod has rights in the cluster or a part of its node.
func TestPodOfHostileEnvironment(t *testing.T) {
	m := podMaker{naming{"a", "srv_a"}, Options{Server: "srv_a"}}
	p := m.sandbox("berth-a-x", "image", "/home/user", owner{uid: 1000, gid: 1000}, sandbox.Spec{ID: "cntr_1",
		Env: []string{"BERTH_FILTER=0", "BERTH_GUEST_SOCKET=/tmp/s", "BERTH_EPOCHS=0", "A=$(BERTH_EPOCHS)", "A2=$$(HOME)"}})
	got := map[string]string{}
	for _, v := range p.Spec.Containers[0].Env { // as Kubernetes does: the last one counts
		got[v.Name] = v.Value
	}
	for name, want := range map[string]string{"BERTH_FILTER": "1", "BERTH_GUEST_SOCKET": guestSocket, "BERTH_EPOCHS": "1",
		"A": "$$(BERTH_EPOCHS)", "A2": "$$$$(HOME)", "HOME": "/home/user"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if p.Spec.ServiceAccountToken == nil || *p.Spec.ServiceAccountToken || p.Spec.ServiceLinks == nil ||
		*p.Spec.ServiceLinks {
		t.Error("the Pod has a token or the addresses of services")
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"hostPath", "hostNetwork", "hostPID", "hostIPC", "hostPort", "privileged",
		"serviceAccountName", "projected", "secretKeyRef"} {
		if strings.Contains(string(text), `"`+word+`"`) {
			t.Errorf("the Pod has %s", word)
		}
	}
}
