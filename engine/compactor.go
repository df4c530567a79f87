package engine

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
)

// A compactor holds the context of a run within its model's window: it replaces items by
// a summary, or drops the oldest. It belongs to the run's goroutine.
type compactor struct {
	run     *run
	window  transcript.Window
	counted int  // tokens of the context after the last turn, as the upstream reported them; 0 if unknown
	raised  int  // lower bound of the threshold after a compaction that freed too little
	failed  bool // the model could not summarise; no further compaction
	rescued bool // a compaction followed the upstream's refusal of a turn
	paused  bool // a compaction ends the response
}

// truncationAuto is the value of "truncation" that lets the engine drop old items.
const truncationAuto = "auto"

func newCompactor(r *run, window transcript.Window) compactor {
	return compactor{run: r, window: window}
}

// threshold returns the number of tokens above which to compact the context, and whether
// the request wants compactions at all. If the client sets no number, it is three quarters
// of the window, or 0 for an unknown window.
func (c *compactor) threshold() (threshold int, wanted bool) {
	for _, m := range c.run.record.Request.ContextManagement {
		n := c.window.Size * 3 / 4
		if m.CompactThreshold != nil {
			n = *m.CompactThreshold
		}
		if n > 0 && (threshold == 0 || n < threshold) {
			threshold = n
		}
		wanted = true
	}
	return max(threshold, c.raised), wanted && !c.failed
}

// edit returns how the Messages API wants compactions, or nil.
func (c *compactor) edit() *berth.CompactionEdit {
	for _, m := range c.run.record.Request.ContextManagement {
		if m.Edit != nil {
			return m.Edit
		}
	}
	return nil
}

// triggered reports whether the request is for a compaction only.
func (c *compactor) triggered() bool {
	input := c.run.record.Input
	return len(input) > 0 && input[len(input)-1].Type() == berth.ItemCompactionTrigger
}

// ownsWindow reports whether a compaction replaces the items before it. It does not if the
// client requested it to build a window of its own.
func (c *compactor) ownsWindow() bool {
	body := c.run.record.Body
	return !c.triggered() || body.PreviousResponseID != nil || body.Conversation != nil
}

// before compacts before a turn, if necessary. As in the hosted service, it leaves the
// first turn of a response alone, unless that continues after outputs of the client's
// calls or would not fit the window.
func (c *compactor) before(ctx context.Context, first bool) error {
	threshold, wanted := c.threshold()
	input := c.run.record.Input
	if first && c.edit() == nil && (len(input) == 0 || !transcript.IsResult(input[len(input)-1])) {
		threshold, _ = c.window.Bound(&model.Request{})
	}
	if !wanted || threshold == 0 {
		return nil
	}
	return c.above(ctx, threshold)
}

// after compacts after the last turn, if the context is above its threshold.
func (c *compactor) after(ctx context.Context) error {
	if threshold, wanted := c.threshold(); wanted && threshold > 0 && !c.triggered() && c.edit() == nil {
		return c.above(ctx, threshold)
	}
	return nil
}

// makeRoom shortens the context of the next request, after the upstream refused this one
// as too long. It reports whether the next one is shorter.
func (c *compactor) makeRoom(ctx context.Context, req *model.Request) bool {
	if _, wanted := c.threshold(); wanted && !c.rescued {
		c.rescued = true
		if err := c.compact(ctx); err == nil {
			return true
		}
	}
	return c.run.record.Body.Truncation == truncationAuto && c.window.Shorten(req)
}

// fit drops the oldest items of a request that is too long for the window, if the response
// allows truncation.
func (c *compactor) fit(req *model.Request) {
	if c.run.record.Body.Truncation != truncationAuto {
		return
	}
	if dropped := c.window.Fit(req); dropped > 0 {
		c.run.log().Info("dropped old items from context", "items", dropped)
	}
}

// above compacts a context of more than threshold tokens. If the model fails to summarise
// it, the response continues without compactions.
func (c *compactor) above(ctx context.Context, threshold int) error {
	r := c.run
	req, _, err := r.request(ctx, false, 0)
	if err != nil {
		return err
	}
	if max(transcript.AtMost(req), c.counted) <= threshold || max(c.window.Tokens(req), c.counted) <= threshold {
		return nil
	}
	if err := c.compact(ctx); err != nil {
		if ctx.Err() != nil || berth.ErrorCode(err) == berth.CodeInternal {
			return err
		}
		r.log().Warn("failed to compact context", "err", err)
		c.failed = true
		return nil
	}
	if req, _, err = r.request(ctx, false, 0); err != nil {
		return err
	}
	if left := c.window.Tokens(req); left > threshold/2 {
		c.raised = max(threshold, left*2) // otherwise every turn would compact again
	}
	return nil
}

// compact adds an item to the response that summarises the context so far.
func (c *compactor) compact(ctx context.Context) error {
	r := c.run
	req, view, err := r.request(ctx, false, 0)
	if err != nil {
		return err
	}
	s := summarizer{provider: r.provider, window: c.window, attempts: newTurnAttempts(r.engine.Retry), log: r.log()}
	req.Prefer = r.origin
	if edit := c.edit(); edit != nil {
		s.instructions = edit.Instructions
	}
	start := time.Now()
	text, usage, err := s.summarize(ctx, req)
	r.writer.AddTiming(s.timing(start, usage, err))
	r.usage.Add(usage)
	r.summaryUsage += usage.OutputTokens
	if err != nil {
		r.writer.SetUsage(r.usage, s.turns...)
		return err
	}
	threshold, _ := c.threshold()
	it := r.engine.transcripts.Compaction(r.record.Project, transcript.Checkpoint{Summary: text,
		Replaces: c.ownsWindow(),
		Kept:     transcript.Survivors(view.Items, s.window.Kept(threshold))})
	c.counted = 0
	c.paused = c.edit() != nil && c.edit().Pause
	r.writer.SetUsage(r.usage, s.turns...)
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		next := len(body.Output)
		return []berth.Event{added(next, it), done(next, it)}
	})
}
