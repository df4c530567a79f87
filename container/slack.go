package container

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// maxSlack is the factor on a guest's time to answer if it gets no CPU time.
const maxSlack = 6

// slackAt is slack at a CPU pressure, 0 to 1.
func slackAt(d time.Duration, pressure float64) time.Duration {
	idle := max(1-pressure, 1./maxSlack)
	return time.Duration(float64(d) / idle)
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
