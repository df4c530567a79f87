package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
)

// MaxForwarded bounds the answer to a forwarded request, in bytes. 2,048 vectors of 3,072
// numbers, the most of one request to OpenAI, have 34 MB in base64.
const MaxForwarded = 64 << 20

// A Forwarding describes forwarded requests of a vendor's API and their answers.
type Forwarding struct {
	Path    string // of the endpoint, below the base URL
	Explain func(*Refusal) Complaint

	// Usage updates the usage of an answer by the answer, or by an event of its stream.
	Usage func(used *berth.Usage, body []byte) error

	// Last is the type of a stream's last event. A stream that ends without it is incomplete. "" means that streams may
	// end with any event.
	Last string
}

// Forward sends a request to another endpoint of a server that speaks one of OpenAI's APIs,
// as model.Forwarder specifies. The whole answer must arrive within u.FirstToken.
func (u *Upstream) Forward(ctx context.Context, client *Client, req *model.Request) iter.Seq2[model.Delta, error] {
	return u.ForwardBy(ctx, client, req, Forwarding{Path: req.Forwarded.Endpoint, Explain: Explain, Usage: addUsage})
}

// ForwardBy is Forward for another vendor's API.
func (u *Upstream) ForwardBy(ctx context.Context, client *Client, req *model.Request,
	f Forwarding) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if req.Forwarded.Stream {
			u.forwardStream(ctx, client, req, f, yield)
			return
		}
		watched, cancel := context.WithTimeoutCause(ctx, u.FirstToken, errSilent)
		defer cancel()
		body, err := u.forward(watched, client, req, f)
		if err != nil {
			yield(nil, u.forwardError(ctx, watched, req, f, err))
			return
		}
		var used berth.Usage
		if err := f.Usage(&used, body); err != nil {
			yield(nil, u.unreadable(fmt.Errorf("decode answer of %s: %w", req.Forwarded.Endpoint, err)))
			return
		}
		if yield(model.Body{JSON: body, Usage: used}, nil) {
			yield(model.Finish{Reason: model.FinishStop, Usage: used}, nil)
		}
	}
}

// addUsage updates usage by an answer of one of OpenAI's APIs, or an event of one.
func addUsage(used *berth.Usage, body []byte) error {
	reported, err := usageOf(body)
	if reported.TotalTokens > 0 {
		*used = reported
	}
	return err
}

// usageOf returns the usage that an answer, or an event of one, reports. Embeddings have
// prompt_tokens, images input_tokens and output_tokens.
func usageOf(body []byte) (berth.Usage, error) {
	var answer struct {
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
			InputTokens  int `json:"input_tokens"`
			OutputTokens int `json:"output_tokens"`
			TotalTokens  int `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return berth.Usage{}, fmt.Errorf("decode usage: %w", err)
	}
	usage := berth.Usage{InputTokens: max(0, answer.Usage.PromptTokens, answer.Usage.InputTokens),
		OutputTokens: max(0, answer.Usage.OutputTokens)}
	usage.TotalTokens = max(usage.InputTokens+usage.OutputTokens, answer.Usage.TotalTokens)
	return usage, nil
}

// forwardStream is Forward for a request of a stream. Each event must arrive within
// u.FirstToken. An upstream that does not stream may send its whole answer instead.
func (u *Upstream) forwardStream(ctx context.Context, client *Client, req *model.Request, f Forwarding,
	yield func(model.Delta, error) bool) {
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(u.FirstToken, func() { cancel(errSilent) })
	defer timer.Stop()
	res, err := u.open(watched, client, req, f)
	if err != nil {
		yield(nil, u.forwardError(ctx, watched, req, f, err))
		return
	}
	defer res.Body.Close()
	events := sse.NewReader(io.LimitReader(res.Body, 4*MaxForwarded), MaxForwarded).Data()
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "application/json" {
		events = wholeBody(watched, res.Body)
	}
	finish, last := model.Finish{Reason: model.FinishStop}, ""
	for data, err := range events {
		if err != nil {
			yield(nil, u.forwardError(ctx, watched, req, f, err))
			return
		}
		if string(data) == "[DONE]" {
			continue
		}
		timer.Stop() // the consumer's time is not the upstream's
		if err := f.Usage(&finish.Usage, data); err != nil {
			yield(nil, u.unreadable(fmt.Errorf("decode event of %s: %w", req.Forwarded.Endpoint, err)))
			return
		}
		var failure error
		if last, failure = kindOf(data); failure != nil {
			yield(nil, u.forwardError(ctx, watched, req, f, failure))
			return
		}
		if !yield(model.Body{JSON: bytes.Clone(data), Usage: finish.Usage}, nil) {
			return
		}
		timer.Reset(u.FirstToken)
	}
	if f.Last != "" && last != f.Last {
		yield(nil, u.forwardError(ctx, watched, req, f, io.ErrUnexpectedEOF))
		return
	}
	yield(finish, nil)
}

// kindOf returns the type of an event, and the error that it reports.
func kindOf(data []byte) (kind string, failure error) {
	var ev struct {
		Type  string          `json:"type"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &ev) == nil && (ev.Type == "error" || len(ev.Error) > 0 && string(ev.Error) != "null") {
		failure = &Refusal{Body: bytes.Clone(data)}
	}
	return ev.Type, failure
}

// wholeBody yields the rest of a body in one piece.
func wholeBody(ctx context.Context, in io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		body, err := ration.Read(ctx, io.LimitReader(in, MaxForwarded), -1, ration.From(ctx))
		yield(body, err)
	}
}

// open sends a forwarded request and returns its answer, which is no refusal.
func (u *Upstream) open(ctx context.Context, client *Client, req *model.Request,
	f Forwarding) (*http.Response, error) {
	fields := maps.Clone(req.Forwarded.Fields)
	name, err := json.Marshal(req.Model)
	if err != nil {
		return nil, fmt.Errorf("encode model: %w", err)
	}
	fields["model"] = name
	send := client.Post(f.Path, fields, req.Forwarded.Header)
	if len(req.Forwarded.Files) > 0 {
		send = client.postForm(f.Path, fields, req.Forwarded.Files)
	}
	res, err := send(ctx)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, refuse(res)
	}
	return res, nil
}

func (u *Upstream) forward(ctx context.Context, client *Client, req *model.Request, f Forwarding) ([]byte, error) {
	res, err := u.open(ctx, client, req, f)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	size := res.ContentLength
	if size > MaxForwarded {
		return nil, u.tooLong()
	}
	body, err := ration.Read(ctx, io.LimitReader(res.Body, MaxForwarded+1), size, ration.From(ctx))
	if err == nil && len(body) > MaxForwarded {
		err = u.tooLong()
	}
	return body, err
}

func (u *Upstream) tooLong() error {
	return berth.Errorf(berth.CodeInvalid, "%s sent an answer above %d bytes. Send fewer inputs in one request.",
		u.who(), MaxForwarded)
}

// forwardError returns the client's error. An upstream without the endpoint answers 404 or
// 405 without naming the model; llama.cpp answers 501.
func (u *Upstream) forwardError(ctx, watched context.Context, req *model.Request, f Forwarding, err error) error {
	if r, ok := errors.AsType[*Refusal](err); ok {
		missing := r.Status == http.StatusNotFound && !names(f.Explain(r), req.Model)
		if missing || r.Status == http.StatusMethodNotAllowed || r.Status == http.StatusNotImplemented {
			return model.NoEndpoint(req.Forwarded.Endpoint, req.Model)
		}
	}
	return u.failure(ctx, watched, req.Model, err, f.Explain)
}
