package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/berth-run/berth"
)

// A progress shows the progress of a response: commands, code and other calls of tools, their output, exit codes and
// durations. On a terminal it is coloured.
type progress struct {
	w       io.Writer
	started time.Time
	turn    int
	output  map[int]time.Time // start of each output item, by index
	calls   []string          // commands of the current call
	atStart bool              // at the start of a line
	colour  bool
	quiet   bool // show nothing
	fold    int  // lines of a command's output to show; 0 means all
	lines   int  // of the current command's output

	response  berth.ResponseID  // as far as known
	provided  berth.ContainerID // the container, which exists from its first call on
	container berth.ContainerID // the container that a call has used
	request   http.Header       // of the answer, which has the id of the request
}

// foldedLines is the default number of lines of a command's output to show.
const foldedLines = 30

func newProgress(w *os.File) *progress {
	return &progress{w: w, started: time.Now(), output: map[int]time.Time{}, atStart: true, fold: foldedLines,
		colour: term.IsTerminal(int(w.Fd())) && os.Getenv("NO_COLOR") == ""}
}

func (p *progress) paint(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// line writes a separate line.
func (p *progress) line(format string, args ...any) {
	p.end()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// end completes an unfinished line of output.
func (p *progress) end() {
	if !p.atStart {
		fmt.Fprintln(p.w)
		p.atStart = true
	}
}

func (p *progress) show(ev *berth.Event) {
	if r := ev.Response; r != nil {
		p.response = r.ID
		p.provided, _ = containerOf(r)
	}
	if ev.Item != nil && ev.Item.Type() == berth.ItemShellCall {
		p.container = p.provided
	}
	if p.quiet {
		return
	}
	switch ev.Type {
	case berth.EventShellCommandDone:
		if len(p.calls) == 0 {
			p.turn++
		}
		p.calls = append(p.calls, *ev.Command)
		p.line("%s %s", p.paint("36", fmt.Sprintf("[%d] %5.1fs $", p.turn, time.Since(p.started).Seconds())),
			firstLine(*ev.Command))
	case berth.EventOutputItemAdded:
		if ev.Item.Type() == berth.ItemShellCallOutput {
			p.output[*ev.OutputIndex] = time.Now()
		}
	case berth.EventShellOutputDelta:
		var d berth.ShellDelta
		if json.Unmarshal(ev.Delta, &d) == nil {
			p.text(d.Stdout + d.Stderr)
		}
	case berth.EventShellOutputDone:
		p.unfold()
		took := time.Since(p.output[*ev.OutputIndex]).Seconds()
		for _, c := range ev.Output {
			end := p.paint("31", inLine(c.Outcome.Type))
			if c.Outcome.ExitCode != nil && *c.Outcome.ExitCode == 0 {
				end = p.paint("32", "exit 0")
			} else if c.Outcome.ExitCode != nil {
				end = p.paint("31", fmt.Sprintf("exit %d", *c.Outcome.ExitCode))
			}
			p.line("    %s after %.1fs", end, took)
		}
	case berth.EventOutputItemDone:
		if ev.Item.Type() == berth.ItemShellCallOutput {
			p.calls = nil
			p.files(ev.Item)
			return
		}
		p.tool(ev.Item)
	case berth.EventCodeDone:
		p.code(*ev.Code)
	}
}

// unfold ends the output of a command, and says how many lines are not shown.
func (p *progress) unfold() {
	if more := p.lines - p.fold; p.fold > 0 && more > 0 {
		p.line("    … %d more lines; --full shows them", more)
	}
	p.lines = 0
}

// changeSigns are the marks before the names of changed files.
var changeSigns = map[string]string{"created": "+", "updated": "~", "deleted": "-"}

// files shows the files that a call changed.
func (p *progress) files(it *berth.Item) {
	var out berth.ShellCallOutput
	if it.Decode(&out) != nil || out.Berth == nil {
		return
	}
	p.changes(out.Berth.Files, out.Berth.MoreFiles)
}

// changes shows changed files, and how many more there are.
func (p *progress) changes(files []berth.FileChange, notListed int) {
	for _, f := range files[:min(len(files), shownFiles)] {
		p.line("    %s %s", p.paint("33", changeSigns[f.Type]), inLine(f.Path))
	}
	if more := len(files) - shownFiles + notListed; more > 0 {
		p.line("    … and %d more files", more)
	}
}

// shownFiles is the number of changed files shown per call.
const shownFiles = 10

// text writes the output of a command, indented and without control characters.
func (p *progress) text(s string) {
	for part := range strings.Lines(s) {
		if p.fold > 0 && p.lines >= p.fold {
			if strings.HasSuffix(part, "\n") {
				p.lines++
			}
			continue
		}
		if strings.HasSuffix(part, "\n") {
			p.lines++
		}
		if p.atStart {
			fmt.Fprint(p.w, "    ")
		}
		p.atStart = strings.HasSuffix(part, "\n")
		fmt.Fprint(p.w, strings.Map(printable, part))
	}
}
