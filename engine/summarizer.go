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

// compactPrompt instructs the model to write a summary.
//
//go:embed compact.md
var compactPrompt string

// maxSummary bounds a summary, in bytes.
const maxSummary = 256 << 10

// A summarizer requests one summary from a model.
type summarizer struct {
	provider model.Provider
	window   transcript.Window
	attempts *turnAttempts
	log      *slog.Logger

	instructions string // the client's, beside compactPrompt

	turns  []berth.UpstreamUsage // of all attempts whose upstream is known
	origin model.Origin          // of the last attempt
	cost   *berth.Cost           // of all attempts; nil without a price
}

// timing returns the timing of a summary that started at a time and ends now.
func (s *summarizer) timing(start time.Time, spent berth.Usage, err error) berth.Timing {
	t := timingSince(berth.TimingCompaction, start)
	t.Upstream, t.Model, t.Usage, t.Cost = s.origin.Upstream, s.origin.Model, &spent, s.cost
	if err != nil {
		t.Error = chatError(err)
	}
	return t
}

// summarize returns the model's summary of the context of a request, and the usage of all
// attempts. It drops the oldest items of a context that does not fit the window.
func (s *summarizer) summarize(ctx context.Context, req *model.Request) (string, berth.Usage, error) {
	out := *req
	prompt := compactPrompt
	if s.instructions != "" {
		prompt += "\nThe client asks for this about the summary:\n\n" + s.instructions
	}
	out.Items = append(slices.Clip(req.Items), berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
		Content: []berth.Content{{Type: "input_text", Text: prompt}}}))
	out.ToolChoice = model.ToolChoice{Mode: "none"}
	out.MaxOutputTokens, out.Text, out.Logprobs, out.TopLogprobs = 0, berth.TextConfig{}, false, nil
	var spent berth.Usage
	for {
		out.Attempt = s.attempts.number
		if bound, known := s.window.Bound(&out); known && s.window.Tokens(&out) > bound {
			s.window.Drop(&out, bound)
		}
		chat, traced := traceChat(ctx, out.Model)
		text, usage, err := s.stream(chat, &out)
		endChat(traced, model.Finish{Usage: usage}, err)
		spent.Add(usage)
		if err == nil {
			return text, spent, nil
		}
		if model.IsTooLong(err) && s.window.Shorten(&out) {
			continue
		}
		after, more := s.attempts.next(err, false)
		if ctx.Err() != nil || !more {
			return "", spent, err
		}
		s.log.Warn("retrying summary", "attempt", s.attempts.number+1, "after", after, "err", err)
		if err := backoff.Sleep(ctx, after); err != nil {
			return "", spent, err
		}
	}
}

// stream returns the text that the model writes. It ignores calls, which the request
// forbids.
func (s *summarizer) stream(ctx context.Context, req *model.Request) (string, berth.Usage, error) {
	var text strings.Builder
	for delta, err := range s.provider.Stream(ctx, req) {
		if err != nil {
			return "", berth.Usage{}, err
		}
		switch d := delta.(type) {
		case model.Text:
			if text.WriteString(d.Text); text.Len() > 4*maxSummary {
				return "", berth.Usage{}, berth.Errorf(berth.CodeUpstream,
					"The model's summary of the conversation is too long.")
			}
		case model.Finish:
			s.turns, s.origin = append(s.turns, turnsOf(d)...), d.Origin
			if d.Cost != nil {
				sum := *d.Cost
				if s.cost != nil {
					sum.Value += s.cost.Value
				}
				s.cost = &sum
			}
			summary := strings.TrimSpace(text.String())
			if summary == "" {
				return "", d.Usage, berth.Errorf(berth.CodeUpstream,
					"The model returned an empty summary of the conversation.")
			}
			return strings.ToValidUTF8(summary[:min(len(summary), maxSummary)], ""), d.Usage, nil
		}
	}
	if ctx.Err() != nil {
		return "", berth.Usage{}, context.Cause(ctx)
	}
	return "", berth.Usage{}, berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
}
