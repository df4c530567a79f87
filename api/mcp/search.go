package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/rule"
)

// Limits of a search.
const (
	searchTime     = time.Minute
	maxMatches     = 500
	defaultMatches = 100
	maxLine        = 500       // bytes of a line that is shown
	maxFound       = 512 << 10 // bytes of grep's output
)

const searchText = `Searches the contents of files in the container for an extended regular expression. Returns the lines with their files and numbers. Binary files and .git are left out.`

type searchInput struct {
	Pattern    string `json:"pattern" jsonschema:"Extended regular expression."`
	Path       string `json:"path,omitempty" jsonschema:"File or directory. Default /mnt/data."`
	Glob       string `json:"glob,omitempty" jsonschema:"Only files with such names, such as *.py."`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Max        int    `json:"max_matches,omitempty" jsonschema:"At most 500. Default 100."`
	inContainer
}

type searchOutput struct {
	Matches []match `json:"matches"`
	More    bool    `json:"more,omitempty" jsonschema:"There may be more matches."`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func search(ctx context.Context, c *call, in searchInput) ([]sdk.Content, searchOutput, error) {
	for _, s := range []string{in.Pattern, in.Glob} {
		if len(s) > 4096 || strings.ContainsAny(s, "\x00\n") {
			return nil, searchOutput{}, berth.Invalid("pattern",
				"Invalid 'pattern': expected one line of at most 4096 bytes.")
		}
	}
	if in.Pattern == "" {
		return nil, searchOutput{}, berth.Invalid("pattern", "The pattern is empty. Use list to find files.")
	}
	at, release, err := c.at(ctx, in.Container, in.Path)
	if err != nil {
		return nil, searchOutput{}, err
	}
	defer release()
	args := []string{"-rnIZEs", "--exclude-dir=.git"}
	if in.IgnoreCase {
		args = append(args, "-i")
	}
	if in.Glob != "" {
		args = append(args, "--include="+in.Glob)
	}
	p, err := c.process(ctx, at.container, guest.ProcessRequest{Cmd: "grep",
		Args: append(args, "-e", in.Pattern, "--", at.real())}, maxFound)
	switch {
	case err != nil:
		return nil, searchOutput{}, err
	case p.code > 1 && len(p.stdout) == 0:
		return nil, searchOutput{}, berth.Invalid("pattern", "The search failed: %s",
			rule.Clip(strings.TrimSpace(string(p.stderr))))
	}
	out, content := matches(at, p, max(1, min(valueOr(in.Max, defaultMatches), maxMatches)))
	return content, out, nil
}

func valueOr(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// matches reads the output of grep -Z.
func matches(at place, p *processResult, most int) (searchOutput, []sdk.Content) {
	out := searchOutput{Matches: []match{}, More: p.cut}
	var b strings.Builder
	in := bufio.NewScanner(bytes.NewReader(p.stdout))
	in.Buffer(nil, maxFound+1)
	for in.Scan() {
		name, rest, named := strings.Cut(in.Text(), "\x00")
		number, line, numbered := strings.Cut(rest, ":")
		n, err := strconv.Atoi(number)
		if !named || !numbered || err != nil {
			continue // a name with a line break, or the last line was cut
		}
		if len(out.Matches) == most {
			out.More = true
			break
		}
		if len(line) > maxLine {
			line = line[:maxLine] + "…"
		}
		m := match{strings.ToValidUTF8(at.seen(name), "\ufffd"), n, strings.ToValidUTF8(line, "\ufffd")}
		out.Matches = append(out.Matches, m)
		fmt.Fprintf(&b, "%s:%d:%s\n", m.Path, m.Line, m.Text)
	}
	switch {
	case len(out.Matches) == 0:
		b.WriteString("[no matches]")
	case out.More:
		b.WriteString("[there may be more]")
	}
	return out, text(b.String())
}

// A processResult is what a process has printed, and how it ended.
type processResult struct {
	stdout, stderr []byte
	code           int
	cut            bool // stdout was longer, and the process was ended
}

// process runs a program in a container. It ends one that prints more than limit bytes.
func (c *call) process(ctx context.Context, id berth.ContainerID, req guest.ProcessRequest, limit int) (*processResult,
	error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	p, err := c.door.Containers.Access().Process(ctx, c.caller, id, req)
	if err != nil {
		return nil, programError(req.Cmd, err)
	}
	defer context.AfterFunc(ctx, func() { end(p) })()
	r := &processResult{code: -1}
	for ev, err := range p.Events() {
		if err != nil {
			return nil, programError(req.Cmd, err)
		}
		if ev.Ended {
			r.code = ev.ExitCode
			break
		}
		if room := 4096 - len(r.stderr); room > 0 {
			r.stderr = append(r.stderr, ev.Stderr[:min(room, len(ev.Stderr))]...)
		}
		if r.cut {
			continue
		}
		room := limit - len(r.stdout)
		r.stdout = append(r.stdout, ev.Stdout[:min(room, len(ev.Stdout))]...)
		if room < len(ev.Stdout) {
			r.cut = true
			end(p)
		}
	}
	if ctx.Err() != nil {
		return nil, berth.Errorf(berth.CodeUnavailable, "The search took longer than a minute. Search in fewer files.")
	}
	return r, nil
}

// end ends a process. An error means that it has ended, or the container has.
func end(p guest.Command) {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	_ = p.Kill(ctx)
}

// programError returns the error of a program that could not run to its end.
func programError(name string, err error) error {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: fmt.Sprintf("%s could not be run: the container has no such program, or does not answer.", name)}
}
