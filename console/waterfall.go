package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// maxBars is the number of steps that a waterfall shows.
const maxBars = 500

// A waterfall shows where time went: a row for each step, with a bar from its start to its end. The
// zero value shows nothing.
type waterfall struct {
	ID   string // of its element
	Name string // "" is "Where time went"
	Open bool
	Took int64 // from the first start to the last end, in milliseconds
	Bars []bar // in the order of their starts
	More int   // steps that are left out
}

// A bar is a step. Times are in milliseconds; Start counts from the first step's start.
type bar struct {
	// a class of the style sheet, and a word for the summary: model, tool, command, container, network, agent, other
	Kind   string
	Name   string
	Link   string // path of a page about it, or ""
	Depth  int    // of its parents
	Start  int64
	Took   int64
	First  int64  // until the first token, for a model; 0 is unknown
	Tokens string // such as "1 200 in, 80 out"
	Cost   string
	Error  string
	Runs   bool // it has not ended

	total int64
	call  string // id of the item of a call, or of the call of a command
}

// wide is the width of the drawing of a waterfall, in units of its SVG.
const wide = 1000

// X returns the place of the bar in the drawing.
func (b bar) X() int64 { return min(wide-3, b.scaled(b.Start)) }

func (b bar) scaled(ms int64) int64 { return int64(float64(ms) / float64(max(1, b.total)) * wide) }

// Width returns the width of the bar in the drawing. A short step is visible.
func (b bar) Width() int64 { return max(3, min(wide-b.X(), b.scaled(b.Took))) }

// FirstX returns the place of the first token in the drawing.
func (b bar) FirstX() int64 { return min(wide-3, b.scaled(b.Start+b.First)) }

// Indent returns a class for the depth.
func (b bar) Indent() string { return "in" + string(rune('0'+min(b.Depth, 6))) }

// newWaterfall draws bars whose starts are in Unix milliseconds. Bars whose order is set by their
// parents are left in it.
func newWaterfall(id string, bars []bar, ordered bool) waterfall {
	w := waterfall{ID: id}
	if len(bars) == 0 {
		return w
	}
	if !ordered {
		slices.SortStableFunc(bars, func(a, b bar) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Depth, b.Depth))
		})
	}
	first, last := bars[0].Start, int64(0)
	for _, b := range bars {
		first, last = min(first, b.Start), max(last, b.Start+b.Took)
	}
	w.Took = last - first
	if w.More = max(0, len(bars)-maxBars); w.More > 0 {
		bars = bars[:maxBars]
	}
	for _, b := range bars {
		b.Start -= first
		b.total = w.Took
		w.Bars = append(w.Bars, b)
	}
	return w
}

// A share is the time of a kind of steps.
type share struct {
	Kind string
	Took int64
}

// Shares returns the time of each kind, the longest first. Each moment counts once, for the deepest step that
// runs then, and of several the shortest, so the shares add up to no more than the whole.
func (w waterfall) Shares() []share {
	var edges []int64
	for _, b := range w.Bars {
		edges = append(edges, b.Start, b.Start+b.Took)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	took := map[string]int64{}
	for i := range max(0, len(edges)-1) {
		var deepest *bar
		for j := range w.Bars {
			b := &w.Bars[j]
			if b.Start > edges[i] || b.Start+b.Took < edges[i+1] {
				continue
			}
			// The start of a container is no deeper than the call that waits for it, but shorter.
			if deepest == nil || b.Depth > deepest.Depth || b.Depth == deepest.Depth && b.Took <= deepest.Took {
				deepest = b
			}
		}
		if deepest != nil {
			took[deepest.Kind] += edges[i+1] - edges[i]
		}
	}
	var shares []share
	for kind, of := range took {
		shares = append(shares, share{kind, of})
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), strings.Compare(a.Kind, b.Kind))
	})
	return shares
}

// barsOf returns the steps of a response: its calls of models and tools, and what the used
// containers know of its commands, connections and start.
func barsOf(turn *turnView, used map[berth.ContainerID]*containerFacts, now time.Time) []bar {
	var timings []berth.Timing
	if turn.Berth != nil {
		timings = turn.Berth.Timings
	}
	running, runs := runningBar(turn, timings, now)
	if len(timings) == 0 {
		if !runs {
			return nil
		}
		return []bar{running}
	}
	items := map[string]*entry{}
	for _, e := range turn.Output {
		items[e.ID()] = e
	}
	var bars []bar
	var end int64
	for _, t := range timings {
		b := bar{Kind: string(t.Type), Start: t.StartedAtMS, Took: t.DurationMS, Error: t.Error}
		if t.Type != berth.TimingTool {
			b.Name = t.Model
			if t.Upstream != "" {
				b.Name = t.Upstream + "/" + t.Model
			}
			if t.FirstTokenMS != nil {
				b.First = *t.FirstTokenMS
			}
			if t.Usage != nil {
				b.Tokens = count(t.Usage.InputTokens) + " in, " + count(t.Usage.OutputTokens) + " out"
			}
			if t.Cost != nil {
				b.Cost = money(t.Cost)
			}
		} else {
			b.call = t.ItemID
			b.Name, b.Link = strings.TrimSuffix(string(t.ItemType), "_call"), "#item-"+t.ItemID
			if e := items[t.ItemID]; e == nil {
				b.Link = ""
			} else if commands := e.Commands(); len(commands) > 0 && b.Name == "shell" {
				b.Name += ": " + line(commands[0])
			}
		}
		end = max(end, t.StartedAtMS+t.DurationMS)
		bars = append(bars, b)
	}
	if runs {
		bars, end = append(bars, running), max(end, running.Start+running.Took)
	}
	for _, facts := range used {
		bars = append(bars, facts.barsOf(turn.Response, end)...)
	}
	return joinCalls(bars)
}

// runningBar returns the step that runs now: a call that has no answer, or else the model's. The response does not say
// when it started, so it starts where the step before it ended.
func runningBar(turn *turnView, timings []berth.Timing, now time.Time) (b bar, runs bool) {
	if turn.Response == nil || turn.Status != berth.StatusInProgress {
		return bar{}, false
	}
	b = bar{Kind: string(berth.TimingModel), Name: turn.Model, Start: turn.CreatedAt * 1000, Runs: true}
	ended := map[string]bool{}
	for _, t := range timings {
		ended[t.ItemID] = true
	}
	for _, e := range turn.Output {
		if !isCall(e.Type()) || ended[e.ID()] {
			continue
		}
		b.Kind, b.call, b.Link = string(berth.TimingTool), e.ID(), "#item-"+e.ID()
		b.Name = strings.TrimSuffix(string(e.Type()), "_call")
		if commands := e.Commands(); len(commands) > 0 && b.Name == "shell" {
			b.Name += ": " + line(commands[0])
		}
		break
	}
	for _, t := range timings { // calls of tools run beside each other
		if b.Kind == string(berth.TimingModel) || t.Type != berth.TimingTool {
			b.Start = max(b.Start, t.StartedAtMS+t.DurationMS)
		}
	}
	b.Took = max(0, now.UnixMilli()-b.Start)
	return b, true
}

// isCall reports whether items of a type are calls that the server runs.
func isCall(kind berth.ItemType) bool {
	switch kind {
	case berth.ItemShellCall, berth.ItemCodeInterpreterCall, berth.ItemTextEditorCall, berth.ItemFileSearchCall,
		berth.ItemWebSearchCall, berth.ItemMCPCall, berth.ItemComputerCall, berth.ItemImageGenerationCall:
		return true
	}
	return false
}

// joinCalls leaves out the command of a call that has only one: its bar would repeat the call's.
func joinCalls(bars []bar) []bar {
	commands := map[string]int{}
	for _, b := range bars {
		if b.Kind == "command" {
			commands[b.call]++
		}
	}
	calls := map[string]*bar{}
	for i := range bars {
		if bars[i].Kind == "tool" {
			calls[bars[i].call] = &bars[i]
		}
	}
	for _, b := range bars {
		if call := calls[b.call]; b.Kind == "command" && call != nil && commands[b.call] == 1 {
			call.Error = cmp.Or(call.Error, b.Error)
		}
	}
	return slices.DeleteFunc(bars, func(b bar) bool {
		return b.Kind == "command" && calls[b.call] != nil && commands[b.call] == 1
	})
}

// line returns the first line of a text, clipped.
func line(text string) string {
	const most = 80
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return clipped(text, most)
}

// clipped returns the first characters of a line.
func clipped(text string, most int) string {
	if words := []rune(text); len(words) > most {
		return string(words[:most]) + "…"
	}
	return text
}
