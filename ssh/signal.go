package ssh

import "strings"

// known are the signals of RFC 4254, section 6.10.
var known = map[string]bool{"ABRT": true, "ALRM": true, "FPE": true, "HUP": true, "ILL": true, "INT": true,
	"KILL": true, "PIPE": true, "QUIT": true, "SEGV": true, "TERM": true, "USR1": true, "USR2": true}

// signalNames are the names of signals by how Go describes them.
var signalNames = map[string]string{"aborted": "ABRT", "alarm clock": "ALRM", "floating point exception": "FPE",
	"hangup": "HUP", "illegal instruction": "ILL", "interrupt": "INT", "killed": "KILL", "broken pipe": "PIPE",
	"quit": "QUIT", "segmentation fault": "SEGV", "terminated": "TERM", "user defined signal 1": "USR1",
	"user defined signal 2": "USR2"}

// signalOf returns the signal that ended a process, by the status that the guest reports.
func signalOf(status string) (name string, dumped bool) {
	text, dumped := strings.CutSuffix(strings.TrimPrefix(status, "signal: "), " (core dumped)")
	if name := signalNames[text]; name != "" {
		return name, dumped
	}
	return "KILL", dumped
}
