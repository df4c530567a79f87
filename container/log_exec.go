package container

import (
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// An execLog logs one process that was started through a Door.
type execLog struct{ *command }

func (l execLog) Output(stderr bool, data []byte) {
	stream := 0
	if stderr {
		stream = 1
	}
	l.write(stream, data, 0)
}

func (l execLog) End(code int) {
	if code < 0 {
		code = 128 + 9 // the exit code that a shell reports for a signal
	}
	l.end(berth.ShellOutcome{Type: "exit", ExitCode: &code})
}

func (l execLog) Detach() { l.end(berth.ShellOutcome{Type: berth.OutcomeUnknown}) }

// commandLine returns a process's command as typed in a shell, without its environment, which
// may hold secrets.
func commandLine(req guest.ProcessRequest) string {
	words := make([]string, 0, 1+len(req.Args))
	size := 0
	for _, word := range append([]string{req.Cmd}, req.Args...) {
		words = append(words, quoted(word))
		if size += len(word); size > 4*half { // shorten drops the rest
			break
		}
	}
	return strings.Join(words, " ")
}

func quoted(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("_-./:=,@%+", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
