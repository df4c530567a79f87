package engine

import (
	"context"
	_ "embed"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

// compactWords ask the model for a summary.
//
//go:embed compact.md
var compactWords string

// maxSummary bounds a summary, in bytes.
const maxSummary = 256 << 10

// Compact sums up the context of a request in a window that the client can go on
// from. Nothing is saved.
func (e *Engine) Compact(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (*berth.CompactedResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.base, func() { cancel(errStopping) })()
	booked, err := e.book(ctx, caller.Project, req)
	if err != nil {
		return nil, err
	}
	var usage berth.Usage
	defer func() { booked(usage.TotalTokens) }()
	o, err := e.outlook(ctx, caller.Project, req)
	if err != nil {
		return nil, err
	}
	s := summary{provider: o.provider, window: e.transcripts.Window(e.Models.Window(req.Model)), patience: e.patience(), log: e.Log.With("request_id", caller.RequestID)}
	text, usage, err := s.ask(ctx, o.request)
	e.count(ctx, caller, req.Model, usage, s.turns)
	if err != nil {
		return nil, err
	}
	kept := transcript.Survivors(o.view.Items, s.window.Kept(0))
	it := e.transcripts.Compaction(caller.Project, transcript.Checkpoint{Summary: text, Kept: kept})
	return &berth.CompactedResponse{ID: berth.ResponseID(berth.NewID(berth.PrefixResponse)), Object: "response.compaction",
		CreatedAt: time.Now().Unix(), Output: append(slices.Clone(kept), it), Usage: usage}, nil
}

var errStopping = berth.Errorf(berth.CodeUnavailable, "The server is stopping. Ask again in a moment.")

// A summary is the asking for one.
type summary struct {
	provider model.Provider
	window   transcript.Window
	patience *patience
	log      *slog.Logger
	turns    []berth.UpstreamUsage // that it took, as far as their upstream is known
}

// ask lets the model sum up the context of a request. What does not fit its window
// is left out, the oldest first.
func (s *summary) ask(ctx context.Context, req *model.Request) (string, berth.Usage, error) {
	asked := *req
	asked.Items = append(slices.Clip(req.Items), berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
		Content: []berth.Content{{Type: "input_text", Text: compactWords}}}))
	asked.ToolChoice = model.ToolChoice{Mode: "none"}
	asked.MaxOutputTokens, asked.Text, asked.Logprobs, asked.TopLogprobs = 0, berth.TextConfig{}, false, nil
	var spent berth.Usage
	for {
		asked.Attempt = s.patience.attempt
		if bound, known := s.window.Bound(&asked); known && s.window.Tokens(&asked) > bound {
			s.window.Drop(&asked, bound)
		}
		text, usage, err := s.listen(ctx, &asked)
		spent.Add(usage)
		if err == nil {
			return text, spent, nil
		}
		if model.IsTooLong(err) && s.window.Shorten(&asked) {
			continue
		}
		after, more := s.patience.more(err, false)
		if ctx.Err() != nil || !more {
			return "", spent, err
		}
		s.log.Warn("asking the model again for a summary", "attempt", s.patience.attempt+1, "after", after, "err", err)
		if err := backoff.Sleep(ctx, after); err != nil {
			return "", spent, err
		}
	}
}

// listen returns what the model writes. Calls, which it was told not to make, are
// not heard.
func (s *summary) listen(ctx context.Context, req *model.Request) (string, berth.Usage, error) {
	var text strings.Builder
	for delta, err := range s.provider.Stream(ctx, req) {
		if err != nil {
			return "", berth.Usage{}, err
		}
		switch d := delta.(type) {
		case model.Text:
			if text.WriteString(d.Text); text.Len() > 4*maxSummary {
				return "", berth.Usage{}, berth.Errorf(berth.CodeUpstream, "The model's summary of the conversation does not end.")
			}
		case model.Finish:
			s.turns = append(s.turns, turnsOf(d)...)
			said := strings.TrimSpace(text.String())
			if said == "" {
				return "", d.Usage, berth.Errorf(berth.CodeUpstream, "The model did not sum up the conversation.")
			}
			return strings.ToValidUTF8(said[:min(len(said), maxSummary)], ""), d.Usage, nil
		}
	}
	if ctx.Err() != nil {
		return "", berth.Usage{}, context.Cause(ctx)
	}
	return "", berth.Usage{}, berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
}
