package sandbox

import (
	"fmt"
	"os"
	"strconv"
)

// OOMScoreAdj is the oom_score_adj of a sandbox's processes: when the machine runs out of
// memory, the kernel ends them before the server.
const OOMScoreAdj = 500

// PreferKill sets OOMScoreAdj for a process and those that it will start. A failure to raise it
// does not justify ending the sandbox.
func PreferKill(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(OOMScoreAdj)), 0)
}
