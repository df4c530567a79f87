package server

import (
	"fmt"
	"os"

	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/sandbox/local"
)

// privileges reports as which user Berth runs, and whether the driver works for it.
func privileges(driver string) Finding {
	if os.Geteuid() == 0 {
		return Finding{What: "mode", OK: true, Says: "root"}
	}
	f := Finding{What: "mode", OK: true, Says: fmt.Sprintf("ordinary user (uid %d)", os.Geteuid())}
	switch driver {
	case "gvisor":
		if err := gvisor.CheckUser(); err != nil {
			f.OK, f.Advice = false, err.Error()
		}
	case "microvm":
		f.OK, f.Advice = false, "the microvm driver needs root; gvisor works without"
	case local.Name:
		f.Advice = "no isolation: commands of models run as this user"
	}
	return f
}

// losses reports what the gvisor driver does for root only.
func losses() (all []Finding) {
	for _, l := range []struct{ what, says, advice string }{
		{"cpu limit", "not enforced: a container sees its number of processors, and may use others", "run as root, or one server for each user whom the system limits"},
		{"memory limit", "enforced by a process that measures 2 to 200 times a second, not by the kernel: a container that grows faster than 2 GB/s may exceed it for a moment", ""},
		{"volumes", "not available: they need mounts, and owners that an ordinary user cannot give", ""},
		{"uids", "gVisor's processes run as this user, in namespaces, without capabilities; as root they would be nobody", "give Berth a user of its own"},
		{"templates", "berth image pull and load work; owners of links and capabilities of files are dropped, device nodes left out; berth image build needs root", ""},
	} {
		all = append(all, Finding{What: l.what, OK: true, Says: l.says, Advice: l.advice})
	}
	return all
}
