package engine

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
)

// compactAt returns the number of tokens above which the response's context is to
// be compacted, and whether it is at all. Where the client leaves the number to the
// server, it is three quarters of the window, if that is known.
func (r *run) compactAt() (threshold int, wanted bool) {
	for _, m := range r.record.Request.ContextManagement {
		n := r.window.Size * 3 / 4
		if m.CompactThreshold != nil {
			n = *m.CompactThreshold
		}
		if n > 0 && (threshold == 0 || n < threshold) {
			threshold = n
		}
		wanted = true
	}
	return max(threshold, r.raised), wanted && !r.uncompacted
}

// triggered reports whether the request asks for a compaction and nothing else.
func (r *run) triggered() bool {
	input := r.record.Input
	return len(input) > 0 && input[len(input)-1].Type() == berth.ItemCompactionTrigger
}

// ownsWindow reports whether what is before a compaction can be left out for good:
// not if the client asked for it to build a window of its own.
func (r *run) ownsWindow() bool {
	body := r.record.Body
	return !r.triggered() || body.PreviousResponseID != nil || body.Conversation != nil
}

// compactBefore compacts before a turn. The first turn of a response goes first, as
// it does in the hosted service, unless it only goes on with what the client's
// calls brought, or would not fit.
func (r *run) compactBefore(ctx context.Context, first bool) error {
	threshold, wanted := r.compactAt()
	input := r.record.Input
	if first && (len(input) == 0 || !transcript.IsResult(input[len(input)-1])) {
		threshold, _ = r.window.Bound(&model.Request{})
	}
	if !wanted || threshold == 0 {
		return nil
	}
	return r.compactAbove(ctx, threshold)
}

// makeRoom changes what the next request shows of the context, after the upstream
// found this one too long. It reports whether it did.
func (r *run) makeRoom(ctx context.Context, req *model.Request) bool {
	if _, wanted := r.compactAt(); wanted && !r.rescued {
		r.rescued = true
		if err := r.compact(ctx); err == nil {
			return true
		}
	}
	return r.record.Body.Truncation == truncationAuto && r.window.Shorten(req)
}

// compactAbove compacts a context of more than so many tokens. That the model does
// not manage to sum it up is no reason to end the response.
func (r *run) compactAbove(ctx context.Context, threshold int) error {
	req, _, err := r.request(ctx, false, 0)
	if err != nil {
		return err
	}
	if max(transcript.AtMost(req), r.heard) <= threshold || max(r.window.Tokens(req), r.heard) <= threshold {
		return nil
	}
	if err := r.compact(ctx); err != nil {
		if ctx.Err() != nil || berth.ErrorCode(err) == berth.CodeInternal {
			return err
		}
		r.log().Warn("the context was not compacted", "err", err)
		r.uncompacted = true
		return nil
	}
	if req, _, err = r.request(ctx, false, 0); err != nil {
		return err
	}
	if left := r.window.Tokens(req); left > threshold/2 {
		r.raised = max(threshold, left*2) // or every turn would be followed by another
	}
	return nil
}

// compact sums up the context so far in an item of the response.
func (r *run) compact(ctx context.Context) error {
	req, view, err := r.request(ctx, false, 0)
	if err != nil {
		return err
	}
	s := summary{provider: r.provider, window: r.window, patience: r.engine.patience(), log: r.log()}
	req.Prefer = r.origin
	text, usage, err := s.ask(ctx, req)
	r.usage.Add(usage)
	r.summed += usage.OutputTokens
	if err != nil {
		r.writer.SetUsage(r.usage, s.turns...)
		return err
	}
	threshold, _ := r.compactAt()
	it := r.engine.transcripts.Compaction(r.record.Project, transcript.Checkpoint{Summary: text, Replaces: r.ownsWindow(),
		Kept: transcript.Survivors(view.Items, s.window.Kept(threshold))})
	r.heard = 0
	r.writer.SetUsage(r.usage, s.turns...)
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		next := len(body.Output)
		return []berth.Event{added(next, it), done(next, it)}
	})
}

// concluded reports whether the response has said its last word, and only the
// compaction that may follow is missing.
func (r *run) concluded(output []berth.Item) bool {
	if r.triggered() {
		return slices.ContainsFunc(output, transcript.IsCompaction)
	}
	if len(r.record.Request.ContextManagement) == 0 {
		return false
	}
	if len(r.pending) > 0 || r.waitsForClient(r.writer.Body()) {
		return false
	}
	for _, it := range slices.Backward(output) {
		if !transcript.IsCompaction(it) {
			return it.Type() == berth.ItemMessage && it.Status() == berth.StatusCompleted
		}
	}
	return false
}

// conclude ends a response whose last turn is over, with a compaction if there is
// reason for one.
func (r *run) conclude(ctx context.Context) error {
	if threshold, wanted := r.compactAt(); wanted && threshold > 0 && !r.triggered() {
		if err := r.compactAbove(ctx, threshold); err != nil {
			return err
		}
	}
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{r.final(body, berth.StatusCompleted, "")}
	})
}
