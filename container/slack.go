package container

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxSlack is the factor on a guest's time to answer if it gets no CPU time.
const maxSlack = 6

// slack returns how long a guest may take to do what takes at most d on an idle machine. A
// guest that gets no CPU time is not dead.
func (o *Options) slack(d time.Duration) time.Duration { return slackAt(d, o.pressure()) }

// slackAt is slack at a CPU pressure, 0 to 1.
func slackAt(d time.Duration, pressure float64) time.Duration {
	idle := max(1-pressure, 1./maxSlack)
	return time.Duration(float64(d) / idle)
}

// patience returns the time after which a guest that does not answer is silent. If the driver
// reports the CPU pressure of the sandbox, it counts in place of the machine's: on a machine whose
// CPUs are busy, a stopped guest waits for no CPU.
func (ls *leases) patience(ctx context.Context, s *instance) time.Duration {
	ctx, cancel := ls.opts.clock.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if s.driver.acquire(ctx) == nil {
		stats, err := ls.opts.Driver.Stats(ctx, string(s.id))
		s.driver.release()
		if err == nil && stats.Pressure != nil {
			return slackAt(silentAfter, *stats.Pressure)
		}
	}
	return ls.opts.slack(silentAfter)
}

// cpuPressure returns the share of the last ten seconds in which some process of the machine
// waited for a CPU, 0 to 1. It returns 0 if the kernel does not report it.
func cpuPressure() float64 {
	raw, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	return parsePressure(string(raw))
}

// parsePressure reads the first line of a file of /proc/pressure:
// "some avg10=98.60 avg60=…".
func parsePressure(text string) float64 {
	_, rest, _ := strings.Cut(text, "some avg10=")
	figure, _, _ := strings.Cut(rest, " ")
	percent, err := strconv.ParseFloat(figure, 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return 0
	}
	return percent / 100
}
