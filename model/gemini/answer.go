package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// maxChunk bounds one chunk, in bytes.
const maxChunk = 32 << 20

// An answer decodes one answer of the model.
type answer struct {
	log *slog.Logger

	started   bool   // a chunk of the dialect has arrived
	one       bool   // only one call is allowed: the request excludes parallel calls
	coder     string // the function that runs code in a container, or empty
	hasOutput bool   // text or calls have been emitted
	id        string
	model     string
	family    string
	reason    finishReason
	message   string // explains the reason
	blocked   bool   // the vendor refused the request before an answer
	thought   string // text of the open reasoning
	usage     usage
	calls     int
	ids       dialogue.NewIDs
}

func newAnswer(req *model.Request, log *slog.Logger) *answer {
	coder := ""
	for _, t := range req.Tools {
		if t.Hosted != nil && t.Hosted.Type == berth.ToolCode {
			coder = t.Name
		}
	}
	return &answer{log: log, one: !req.ParallelToolCalls, coder: coder, family: family(req.Model),
		ids: dialogue.NewIDs{Items: req.Items}}
}

// Events implements upstream.Answer.
func (a *answer) Events(in io.Reader) iter.Seq2[[]byte, error] {
	return sse.NewReader(in, maxChunk).Data()
}

// Progress implements upstream.Answer.
func (a *answer) Progress() upstream.Progress {
	return upstream.Progress{Started: a.started, Ended: a.reason != ""}
}

// Take implements upstream.Answer.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	var c chunk
	if err := upstream.Decode(data, &c, &essential{}, a.log); err != nil {
		return out, err
	}
	if len(c.Error) > 0 && !bytes.Equal(c.Error, []byte("null")) {
		return out, &upstream.Refusal{Body: bytes.Clone(data)}
	}
	a.started = a.started || c.ResponseID != "" || c.ModelVersion != "" || c.UsageMetadata != nil ||
		len(c.Candidates) > 0
	if c.ResponseID != "" {
		a.id = c.ResponseID
	}
	if c.ModelVersion != "" {
		a.model = c.ModelVersion
	}
	if c.UsageMetadata != nil {
		a.usage = *c.UsageMetadata
	}
	if f := c.PromptFeedback; f != nil && f.BlockReason != "" {
		a.blocked = true
		a.end(f.BlockReason, f.BlockReasonMessage)
	}
	for i := range c.Candidates {
		candidate := &c.Candidates[i]
		if candidate.Index != 0 {
			continue
		}
		probs := candidate.Logprobs.wire()
		for j := range candidate.Content.Parts {
			out = a.part(&candidate.Content.Parts[j], probs, out)
			probs = nil
		}
		if candidate.FinishReason != "" {
			a.end(candidate.FinishReason, candidate.FinishMessage)
		}
	}
	return out, nil
}

func (a *answer) end(reason finishReason, message string) {
	a.reason, a.message = reason, message
}

// part appends the deltas of a part.
func (a *answer) part(p *part, probs []json.RawMessage, out []model.Delta) []model.Delta {
	if p.ExecutableCode != nil && p.ExecutableCode.Code != "" {
		a.takeCode(p)
	}
	switch {
	case p.FunctionCall != nil:
		if p.FunctionCall.Name == "" || a.one && a.calls > 0 {
			a.log.Debug("dropped unnamed or parallel call", "name", p.FunctionCall.Name)
			return out
		}
		out = a.sign("call", p.ThoughtSignature, p.FunctionCall.Args, out)
		a.hasOutput = true
		c := model.Call{Index: a.calls, ID: a.ids.For(p.FunctionCall.ID), Name: p.FunctionCall.Name, Arguments: "{}"}
		if args := bytes.TrimSpace(p.FunctionCall.Args); len(args) > 0 && !bytes.Equal(args, []byte("null")) {
			c.Arguments = string(args)
		}
		a.calls++
		return append(out, c)
	case p.Text == nil:
		if p.InlineData != nil {
			a.log.Debug("dropped unrequested image", "type", p.InlineData.MIMEType)
		}
		return a.sign("text", p.ThoughtSignature, nil, out)
	case p.Thought:
		if *p.Text != "" {
			a.thought += *p.Text
			out = append(out, model.Thought{Text: *p.Text, Summary: true})
		}
		return a.sign("thought", p.ThoughtSignature, nil, out)
	}
	if *p.Text != "" || len(probs) > 0 {
		a.hasOutput, a.thought = true, ""
		out = append(out, model.Text{Text: *p.Text, Logprobs: probs})
	}
	return a.sign("text", p.ThoughtSignature, nil, out)
}

// takeCode replaces code that a model wrote for codeExecution, which it was not offered. If the request has
// the code interpreter, the part becomes a call of it, so that the code runs in the container; else a text.
func (a *answer) takeCode(p *part) {
	code := p.ExecutableCode.Code
	if a.coder == "" {
		text := "```python\n" + strings.TrimSuffix(code, "\n") + "\n```\n"
		p.Text = &text
		return
	}
	args, _ := json.Marshal(map[string]string{"code": code}) // a string always marshals
	p.FunctionCall = &functionCall{Name: a.coder, Args: args}
}

// sign appends the signature of a part, as reasoning. The signature belongs to the
// thought itself, or becomes an item before the part that it signs. For a call, args
// are the arguments as the model wrote them.
func (a *answer) sign(place, text string, args json.RawMessage, out []model.Delta) []model.Delta {
	if text == "" {
		return out
	}
	s := signature{Of: a.id, Place: place, Signature: text, Args: args}
	r := berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{}}
	if a.thought != "" {
		r.Summary = []berth.Content{{Type: "summary_text", Text: a.thought}}
		if place == "thought" {
			s.Thought = a.thought
		}
	}
	r.EncryptedContent = dialogue.Seal(vendor, a.family, s)
	item := model.Item{Item: berth.NewItem(r), Ends: a.thought != ""}
	a.thought = ""
	return append(out, item)
}

// declined is the text of a refusal for which the vendor gives no reason.
const declined = "The model's provider declined to answer this (%s)."

// Finish implements upstream.Answer. An answer without finish reason was cut off.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	f := model.Finish{Reason: model.FinishStop, Usage: a.usage.total(), Model: a.model}
	switch {
	case a.reason == "":
		return out, io.ErrUnexpectedEOF
	case a.blocked || declines(a.reason):
		if a.hasOutput {
			f.Reason = model.FinishContentFilter
			break
		}
		if a.message == "" {
			a.message = fmt.Sprintf(declined, a.reason)
		}
		out = append(out, model.Refusal{Text: a.message})
	case a.reason == finishMaxTokens, a.reason == finishContinuation:
		f.Reason = model.FinishLength
	case a.reason != finishStop && a.reason != finishUnspecified: // OTHER, and calls that the vendor could not parse
		return out, errors.New(strings.TrimSpace(fmt.Sprintf("the upstream aborted its answer: %s %s", a.reason,
			a.message)))
	}
	return append(out, f), nil
}

// declines reports whether the vendor, not the model, ended the answer because of its
// content.
func declines(r finishReason) bool {
	switch r {
	case finishSafety, finishRecitation, finishBlocklist, finishProhibitedContent, finishSPII,
		finishLanguage, finishImageSafety, finishImageProhibitedContent, finishImageRecitation:
		return true
	}
	return false
}

// total converts usage to Responses, where thoughts count as output.
func (u *usage) total() berth.Usage {
	out := berth.Usage{InputTokens: u.Prompt + u.ToolUse, OutputTokens: u.Candidates + u.Thoughts, TotalTokens: u.Total,
		InputTokenDetails:  berth.InputTokenDetails{CachedTokens: u.Cached},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: u.Thoughts}}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	return out
}
