package doctor

import (
	"fmt"
	"os"

	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/server/config"
)

// privileges reports the user that Berth runs as, and whether the driver works for this user.
func privileges(driver string) Finding {
	if os.Geteuid() == 0 {
		return Finding{What: "mode", OK: true, Detail: "root"}
	}
	f := Finding{What: "mode", OK: true, Detail: fmt.Sprintf("ordinary user (uid %d)", os.Geteuid())}
	switch driver {
	case "gvisor":
		if err := gvisor.CheckUser(); err != nil {
			f.OK, f.Advice = false, err.Error()
		}
	case "microvm":
		f.OK, f.Advice = false, "the microvm driver needs root; gvisor works without root"
	case config.UnsafeLocal:
		f.Advice = "no isolation: the models' commands run as this user"
	}
	return f
}

// losses reports what the gvisor driver lacks without root.
func losses() (all []Finding) {
	for _, l := range []struct{ what, says, advice string }{
		{"cpu limit", "not enforced: a container sees its number of processors but may use more",
			"run as root, or limit this user's CPU with the system's own means"},
		{"memory limit",
			"enforced by a process that measures 2 to 200 times a second, not by the kernel: a container that grows faster than 2 GB/s may briefly exceed it", ""},
		{"volumes", "not available: they need mounts and file owners, which require root", ""},
		{"uids", "gVisor's processes run as this user, in namespaces, without capabilities; under root they run as the user nobody",
			"run Berth as a dedicated user"},
		{"templates", "berth image build, pull and load drop owners of links, file capabilities and device nodes", ""},
	} {
		all = append(all, Finding{What: l.what, OK: true, Detail: l.says, Advice: l.advice})
	}
	return all
}
