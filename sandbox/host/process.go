package host

import (
	"fmt"
	"os"
	"strings"
)

// IsZombie reports whether the process is dead and not waited for.
func IsZombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// pid (comm) state: comm may hold anything, even parentheses.
	i := strings.LastIndexByte(string(raw), ')')
	return i < 0 || i+2 >= len(raw) || raw[i+2] == 'Z' || raw[i+2] == 'X'
}
