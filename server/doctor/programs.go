package doctor

import (
	"os"
	"os/exec"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
)

// programs reports the programs that this machine lacks, with what does not work without them.
func programs(c *config.Config) []Finding {
	var all []Finding
	if err := image.CheckBuild(); err != nil {
		all = append(all, Finding{What: "image build", OK: true,
			Detail: "templates cannot be built from Debian packages", Advice: err.Error()})
	}
	if c.Driver != "gvisor" || os.Geteuid() != 0 { // volumes of microvm are checked with its machines
		return all
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		all = append(all, Finding{What: "volumes", OK: true, Detail: "not available: mkfs.ext4 is not installed",
			Advice: "apt-get install e2fsprogs"})
	} else if _, err := os.Stat("/dev/loop-control"); err != nil {
		all = append(all, Finding{What: "volumes", OK: true, Detail: "not available: the kernel has no loop devices",
			Advice: "modprobe loop"})
	}
	return all
}
