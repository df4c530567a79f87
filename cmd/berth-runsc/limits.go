package main

import (
	"encoding/json"
	"runtime"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// minCPUs is the minimum number of processors that a sandbox sees. With one, many programs omit locks.
const minCPUs = 2

// withLimits adds the memory and the processors of the bundle's resources to
// the arguments of `boot`, so that /proc/meminfo and nproc in the sandbox tell
// its limits and not the machine's. runsc itself would read them from the
// cgroup that it makes; with --ignore-cgroups, because Berth makes it, runsc
// would show the whole machine.
//
// Only the first of the two executions of `boot` is changed, the one that has
// yet to leave the host's file system: runsc hands the flags on to the second.
// It leaves invalid arguments to runsc, which reports them.
func withLimits(args []string, read func(fd int) ([]byte, error)) []string {
	if !slices.Contains(args, "boot") || !slices.Contains(args, "--setup-root") {
		return args
	}
	raw, err := read(specFD(args))
	if err != nil {
		return args
	}
	var spec specs.Spec
	if json.Unmarshal(raw, &spec) != nil || spec.Linux == nil || spec.Linux.Resources == nil {
		return args
	}

	// The container's id is the last argument, and a later flag wins.
	last := len(args) - 1
	return slices.Insert(slices.Clone(args), last, limitFlags(spec.Linux.Resources)...)
}

// specFD returns the descriptor from which boot reads the bundle's config.json, or -1 if there is none.
func specFD(args []string) int {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--spec-fd="); ok {
			if fd, err := strconv.Atoi(v); err == nil {
				return fd
			}
		}
	}
	return -1
}

// readFD returns the content of the file fd and leaves its offset unchanged. The file cannot be opened by
// name, because the process runs as the user nobody.
func readFD(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	buf := make([]byte, st.Size)
	n, err := unix.Pread(fd, buf, 0)
	return buf[:max(n, 0)], err
}

// limitFlags returns the flags of `boot` that state res.
func limitFlags(res *specs.LinuxResources) []string {
	var flags []string
	if m := res.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		flags = append(flags, "--total-memory="+strconv.FormatInt(*m.Limit, 10))
	}
	if c := res.CPU; c != nil && c.Quota != nil && c.Period != nil && *c.Quota > 0 && *c.Period > 0 {
		period := int64(*c.Period)
		n := max(minCPUs, int((*c.Quota+period-1)/period))
		flags = append(flags, "--cpu-num="+strconv.Itoa(min(n, runtime.NumCPU())))
	}
	return flags
}
