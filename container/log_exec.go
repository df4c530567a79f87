package container

import (
	"context"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Door returns the way to a container's guest for a caller, whose processes are
// logged. The caller of it calls release; until then the container does not expire.
func (a *Access) Door(ctx context.Context, caller berth.Caller, id berth.ContainerID) (door *guest.Door, release func(), err error) {
	s, release, err := a.leases.hold(ctx, caller.Project, id)
	if err != nil {
		return nil, nil, err
	}
	return s.client.Door(func(ctx context.Context, req guest.ProcessRequest) guest.Listener {
		entry := berth.ContainerLog{ID: berth.LogID(berth.NewID(berth.PrefixContainerLog)), Source: berth.LogExec, KeyID: caller.Key,
			RequestID: caller.RequestID, User: req.User, Command: commandLine(req)}
		return execLog{a.logs.start(ctx, s, []berth.ContainerLog{entry})[0]}
	}), release, nil
}

// An execLog logs one process that came through a door.
type execLog struct{ *command }

func (l execLog) Output(stderr bool, data []byte) {
	stream := 0
	if stderr {
		stream = 1
	}
	l.print(stream, data, 0)
}

func (l execLog) End(code int) {
	if code < 0 {
		code = 128 + 9 // as a shell reports what a signal ended
	}
	l.end(berth.ShellOutcome{Type: "exit", ExitCode: &code})
}

func (l execLog) Leave() { l.end(berth.ShellOutcome{Type: berth.OutcomeUnknown}) }

// commandLine is a process's command as one would type it. Its environment may hold
// secrets and is not told.
func commandLine(req guest.ProcessRequest) string {
	words := make([]string, 0, 1+len(req.Args))
	size := 0
	for _, word := range append([]string{req.Cmd}, req.Args...) {
		words = append(words, quoted(word))
		if size += len(word); size > 4*half { // shorten cuts it anyway
			break
		}
	}
	return strings.Join(words, " ")
}

func quoted(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./:=,@%+", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
