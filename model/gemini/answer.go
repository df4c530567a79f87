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

	"google.golang.org/genai"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// maxChunk bounds one chunk, in bytes.
const maxChunk = 32 << 20

// An answer is what the model says in one turn, as it comes in.
type answer struct {
	log *slog.Logger

	begun   bool // a chunk of the dialect has come
	one     bool // call only, because the request wants no parallel ones
	said    bool // words or calls
	id      string
	model   string
	family  string
	reason  genai.FinishReason
	message string // about the reason
	blocked bool   // the request was, before an answer
	thought string // what the open reasoning says
	usage   usage
	calls   int
	ids     dialogue.NewIDs
}

func newAnswer(req *model.Request, log *slog.Logger) *answer {
	return &answer{log: log, one: !req.ParallelToolCalls, family: family(req.Model), ids: dialogue.NewIDs{Items: req.Items}}
}

// read yields what the answer says, and its Finish or an error.
func (a *answer) read(in io.Reader) iter.Seq2[model.Delta, error] {
	return upstream.Read(in, sse.NewReader(in, maxChunk).Data(), a, a.log)
}

// Begun implements upstream.Answer.
func (a *answer) Begun() bool { return a.begun }

// Ended implements upstream.Answer.
func (a *answer) Ended() bool { return a.reason != "" }

// Done implements upstream.Answer.
func (a *answer) Done() bool { return false }

// Take appends what a chunk says.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	var c chunk
	if err := upstream.Decode(data, &c, &essential{}, a.log); err != nil {
		return out, err
	}
	if len(c.Error) > 0 && !bytes.Equal(c.Error, []byte("null")) {
		return out, &upstream.Refusal{Body: bytes.Clone(data)}
	}
	a.begun = a.begun || c.ResponseID != "" || c.ModelVersion != "" || c.UsageMetadata != nil || len(c.Candidates) > 0
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
		a.end(genai.FinishReason(f.BlockReason), f.BlockReasonMessage)
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

func (a *answer) end(reason genai.FinishReason, message string) {
	a.reason, a.message = reason, message
}

// part appends what a part says.
func (a *answer) part(p *part, probs []json.RawMessage, out []model.Delta) []model.Delta {
	switch {
	case p.FunctionCall != nil:
		if p.FunctionCall.Name == "" || a.one && a.calls > 0 {
			a.log.Debug("a call is left out, because it has no name or none is to be beside another", "name", p.FunctionCall.Name)
			return out
		}
		out = a.sign("call", p.ThoughtSignature, p.FunctionCall.Args, out)
		a.said = true
		c := model.Call{Index: a.calls, ID: a.ids.For(p.FunctionCall.ID), Name: p.FunctionCall.Name, Arguments: "{}"}
		if args := bytes.TrimSpace(p.FunctionCall.Args); len(args) > 0 && !bytes.Equal(args, []byte("null")) {
			c.Arguments = string(args)
		}
		a.calls++
		return append(out, c)
	case p.Text == nil:
		if p.InlineData != nil {
			a.log.Debug("a picture that was not asked for is left out", "type", p.InlineData.MIMEType)
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
		a.said, a.thought = true, ""
		out = append(out, model.Text{Text: *p.Text, Logprobs: probs})
	}
	return a.sign("text", p.ThoughtSignature, nil, out)
}

// sign appends the signature of a part, as reasoning: of the thought itself, or as
// an item of its own beside what it signs, which are the arguments of a call as the
// model wrote them.
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

// declined is what a refusal says where the vendor gives no reason.
const declined = "The model's provider declined to answer this (%s)."

// Finish appends the Finish. An answer whose end nobody announced was cut off.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	f := model.Finish{Reason: model.FinishStop, Usage: a.usage.total(), Model: a.model}
	switch {
	case a.reason == "":
		return out, io.ErrUnexpectedEOF
	case a.blocked || declines(a.reason):
		if a.said {
			f.Reason = model.FinishContentFilter
			break
		}
		if a.message == "" {
			a.message = fmt.Sprintf(declined, a.reason)
		}
		out = append(out, model.Refusal{Text: a.message})
	case a.reason == genai.FinishReasonMaxTokens, a.reason == genai.FinishReasonContinuation:
		f.Reason = model.FinishLength
	case a.reason != genai.FinishReasonStop && a.reason != genai.FinishReasonUnspecified: // OTHER, and calls that the vendor itself could not read
		return out, errors.New(strings.TrimSpace(fmt.Sprintf("the upstream gave up its answer: %s %s", a.reason, a.message)))
	}
	return append(out, f), nil
}

// declines reports whether the vendor, not the model, ended the answer because of
// what it says.
func declines(r genai.FinishReason) bool {
	switch r {
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonBlocklist, genai.FinishReasonProhibitedContent, genai.FinishReasonSPII,
		genai.FinishReasonLanguage, genai.FinishReasonImageSafety, genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		return true
	}
	return false
}

// total puts usage into the words of Responses, which count thoughts as output.
func (u *usage) total() berth.Usage {
	out := berth.Usage{InputTokens: u.Prompt + u.ToolUse, OutputTokens: u.Candidates + u.Thoughts, TotalTokens: u.Total,
		InputTokenDetails:  berth.InputTokenDetails{CachedTokens: u.Cached},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: u.Thoughts}}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	return out
}
