package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

// programs are the programs of a response that have not ended. A program makes calls in
// rounds: it continues when all calls of a round have an answer. The server runs those of
// hosted tools, the client answers the others, in a response that continues this one.
//
// What a program has done is in the items of its calls alone. A program that is resumed, after
// a crash or in another response, runs again from its beginning: its first calls are those
// of the items, with their outputs, and are not made again.
type programs struct {
	run     *run
	running []*program
}

// A program is one of programs.
type program struct {
	tool.Program
	id      string // call_id, which its calls name
	started time.Time
	begun   bool
	round   []roundCall // the calls of the last round
	made    int         // number of its calls so far
}

// A roundCall is a call that a program waits for: an item, or an answer without one.
type roundCall struct {
	key    string // see keyOf
	answer tool.Answer
}

// keyOf returns what identifies a call's item.
func keyOf(it berth.Item) string { return cmp.Or(it.CallID(), it.ID()) }

// add adds a program, which is an item of the context or of the output.
func (p *programs) add(call tool.Program, id string) {
	p.running = append(p.running, &program{Program: call, id: id, started: time.Now()})
}

// stop ends the processes of all programs.
func (p *programs) stop() {
	for _, each := range p.running {
		each.Stop()
	}
	p.running = nil
}

// resume adds the programs of the context that go on in this response: those without output
// whose calls have an answer in the input.
func (p *programs) resume() error {
	calls, err := p.run.resumable(p.run.engine.Tools, p.run.transcript.Input, slices.Concat(p.run.transcript.Items(),
		p.run.writer.Body().Output))
	if err != nil {
		return err
	}
	for _, c := range calls {
		p.add(c, c.Item().CallID())
	}
	return nil
}

// resumable returns the programs among items that an input continues.
func (o *outlook) resumable(kinds *tool.Registry, input, items []berth.Item) ([]tool.Program, error) {
	if !slices.ContainsFunc(items, func(it berth.Item) bool { return it.Type() == berth.ItemProgram }) {
		return nil, nil
	}
	answered := map[string]bool{}
	for _, it := range input {
		if kinds.IsOutput(it) {
			answered[it.CallID()] = true
		}
	}
	var all []tool.Program
	outputs := transcript.Outputs(kinds, items)
	for i, it := range o.transcript.Items() {
		if _, ended := outputs[i]; ended || it.Type() != berth.ItemProgram {
			continue
		}
		made, _ := transcript.ProgramCalls(kinds, items, it.CallID())
		if !slices.ContainsFunc(slices.Collect(maps.Values(made)), func(n int) bool {
			return answered[items[n].CallID()]
		}) {
			continue
		}
		t := o.hostedTool(kinds, it)
		if t == nil {
			return nil, berth.Invalid("tools",
				"The input has outputs for calls of program '%s'. Add a tool of type '%s' to 'tools'.", it.ID(),
				berth.ToolProgrammatic)
		}
		call, err := t.ResumeCall(it, berth.Item{}, nil)
		if err != nil {
			return nil, err
		}
		if c, ok := call.(tool.Program); ok {
			all = append(all, c)
		}
	}
	return all, nil
}

// advance runs the programs until calls of hosted tools are pending, or all programs have
// ended or wait for the client. No hosted call may be pending.
func (p *programs) advance(ctx context.Context) error {
	for i := 0; i < len(p.running); {
		ended, err := p.continueOne(ctx, p.running[i])
		if err != nil {
			return err
		}
		if ended {
			p.running = slices.Delete(p.running, i, i+1)
		} else {
			i++
		}
		if len(p.run.pending) > 0 {
			return nil
		}
	}
	return nil
}

// continueOne runs a program until it waits for calls, or has ended.
func (p *programs) continueOne(ctx context.Context, c *program) (ended bool, err error) {
	r := p.run
	for {
		var answers []tool.Answer
		if c.begun {
			var complete bool
			if answers, complete, err = p.answers(c); err != nil || !complete {
				return false, err
			}
		}
		round, err := c.Next(ctx, answers)
		if err != nil {
			return false, fmt.Errorf("run program: %w", err)
		}
		c.begun = true
		if len(round.Calls) == 0 {
			c.Stop()
			outcome := OutcomeOK
			if r.engine.Tools.Outcome(round.Output) != tool.OK {
				outcome = OutcomeFailed
			}
			r.engine.Observer.Called(berth.ItemProgram, outcome, time.Since(c.started))
			return true, r.writer.Update(ctx, func(body berth.Response) []berth.Event {
				return []berth.Event{added(len(body.Output), round.Opened), done(len(body.Output), round.Output)}
			})
		}
		if err := p.open(ctx, c, round.Calls); err != nil {
			return false, err
		}
		if len(r.pending) > 0 {
			return false, nil
		}
	}
}

// answers returns the answers to the calls of a program's last round, or false if the client
// must give one first.
func (p *programs) answers(c *program) (answers []tool.Answer, complete bool, err error) {
	r, kinds := p.run, p.run.engine.Tools
	items := slices.Concat(r.transcript.Items(), r.writer.Body().Output)
	outputs := transcript.Outputs(kinds, items)
	places := map[string]int{}
	made, _ := transcript.ProgramCalls(kinds, items, c.id)
	for _, n := range made {
		places[keyOf(items[n])] = n
	}
	answers = make([]tool.Answer, 0, len(c.round))
	for _, call := range c.round {
		if call.key == "" {
			answers = append(answers, call.answer)
			continue
		}
		n := places[call.key]
		output, answered := outputs[n]
		switch {
		case answered:
			a, err := kinds.Answer(items[output])
			if err != nil {
				return nil, false, fmt.Errorf("output of item %s: %w", items[n].ID(), err)
			}
			answers = append(answers, a)
		case kinds.IsHosted(items[n]) || items[n].Status() == berth.StatusIncomplete:
			answers = append(answers,
				tool.Answer{Error: "This call was interrupted. It is not known what it has done."})
		default:
			return nil, false, nil
		}
	}
	return answers, true, nil
}

// open adds the calls of a round: their items are stored together, before any of them runs.
// Calls that have items already are not made again.
func (p *programs) open(ctx context.Context, c *program, calls []tool.ProgramCall) error {
	r := p.run
	var pending []pendingCall
	err := r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		items := slices.Concat(r.transcript.Items(), body.Output)
		made, last := transcript.ProgramCalls(r.engine.Tools, items, c.id)
		c.round = nil
		var events []berth.Event
		next := len(body.Output)
		for _, call := range calls {
			c.made++
			if n, ok := made[c.made]; ok && r.engine.Tools.Name(items[n]) == call.Name {
				c.round = append(c.round, roundCall{key: keyOf(items[n])})
				continue
			}
			opened := openedCall{refusal: "This call was not made: the program did not make it before it was interrupted."}
			if c.made > last {
				opened = p.openCall(&berth.ToolCaller{Type: berth.CallerProgram, CallerID: c.id,
					Berth: &berth.CallerBerth{Call: c.made}}, call, next)
			}
			if opened.refusal != "" {
				c.round = append(c.round, roundCall{answer: tool.Answer{Error: opened.refusal}})
				continue
			}
			c.round = append(c.round, roundCall{key: keyOf(opened.item)})
			events = append(events, opened.events...)
			if opened.hosted {
				r.hostedCalls++
				pending = append(pending, pendingCall{opened.call, next, opened.caller})
			} else {
				r.engine.Observer.Called(opened.item.Type(), OutcomeClient, 0)
			}
			next++
		}
		return events
	})
	if err == nil {
		r.pending = append(r.pending, pending...)
	}
	return err
}

// An openedCall is a call that a program makes, before it is stored.
type openedCall struct {
	call    tool.Call
	item    berth.Item
	hosted  bool
	caller  *berth.ToolCaller
	events  []berth.Event
	refusal string // why the call cannot be made, for the program; the rest is then empty
}

// openCall opens a call of a program at a place of the output.
func (p *programs) openCall(caller *berth.ToolCaller, c tool.ProgramCall, place int) openedCall {
	r := p.run
	t := r.tools.byName[c.Name]
	if refusal := p.refuses(t, c.Name, place); refusal != "" {
		return openedCall{refusal: refusal}
	}
	call := t.NewCall(berth.NewID(berth.PrefixCall))
	hosted := !t.Spec().Client
	held := false
	if hosted {
		call = r.guard.hold(call, t)
		_, held = call.(*heldCall)
	}
	opened := call.Item()
	events := call.Write(c.Arguments)
	closed, item, refusal := call.Close(c.Arguments)
	if h, ok := call.(*heldCall); ok {
		if h.waits {
			return openedCall{refusal: fmt.Sprintf(
				"This call of %s needs the user's approval. Programs cannot make such calls: call it directly.",
				c.Name)}
		}
		call, opened = h.Call, h.opened
	}
	if refusal != "" {
		return openedCall{refusal: refusal}
	}
	if opened.IsZero() && !held {
		opened = call.Item()
	}
	mark := map[string]any{"caller": caller}
	events = slices.Concat([]berth.Event{added(place, with(opened, mark))}, at(place, events), at(place, closed))
	item = with(item, mark)
	if !hosted || !r.engine.Tools.HoldsOutput(item) {
		events = append(events, done(place, item))
	}
	return openedCall{call: call, item: item, hosted: hosted, caller: caller, events: events}
}

// maxNamed is the number of tools that a refusal names.
const maxNamed = 20

// refuses returns why a program cannot call a function, or "". t is nil if there is no
// such function.
func (p *programs) refuses(t *boundTool, name string, place int) string {
	r := p.run
	switch {
	case t == nil:
		var names []string
		for _, f := range r.tools.callable() {
			names = append(names, f.Name)
		}
		text := "There is no tool named " + name + "."
		if len(names) > 0 {
			text += " There are: " + strings.Join(names[:min(len(names), maxNamed)], ", ")
		}
		return text
	case !r.tools.isCallable(name):
		return fmt.Sprintf("Programs cannot call %s: its allowed_callers do not include them. Call it directly.", name)
	case !t.Spec().Client && r.withheld():
		return "No more calls can be made in this response: max_tool_calls is reached."
	case place >= maxItems:
		return fmt.Sprintf("No more calls can be made in this response: it has %d items.", place)
	}
	return ""
}
