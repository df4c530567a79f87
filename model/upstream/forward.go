package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/model"
)

// MaxForwarded bounds the answer to a forwarded request, in bytes. 2,048 vectors of 3,072
// numbers, the most of one request to OpenAI, have 34 MB in base64.
const MaxForwarded = 64 << 20

// Forward sends a request to another endpoint of a server that speaks one of OpenAI's APIs,
// as model.Forwarder specifies. The whole answer must arrive within u.FirstToken.
func (u *Upstream) Forward(ctx context.Context, client *Client, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		watched, cancel := context.WithTimeoutCause(ctx, u.FirstToken, errSilent)
		defer cancel()
		body, err := u.forward(watched, client, req)
		if err != nil {
			yield(nil, u.forwardError(ctx, watched, req, err))
			return
		}
		var answer struct {
			Usage struct {
				PromptTokens int `json:"prompt_tokens"`
				TotalTokens  int `json:"total_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			yield(nil, u.unreadable(fmt.Errorf("decode answer of %s: %w", req.Forwarded.Endpoint, err)))
			return
		}
		usage := berth.Usage{InputTokens: max(0, answer.Usage.PromptTokens)}
		usage.TotalTokens = max(usage.InputTokens, answer.Usage.TotalTokens)
		if yield(model.Body{JSON: body}, nil) {
			yield(model.Finish{Reason: model.FinishStop, Usage: usage}, nil)
		}
	}
}

func (u *Upstream) forward(ctx context.Context, client *Client, req *model.Request) ([]byte, error) {
	fields := maps.Clone(req.Forwarded.Fields)
	name, err := json.Marshal(req.Model)
	if err != nil {
		return nil, fmt.Errorf("encode model: %w", err)
	}
	fields["model"] = name
	res, err := client.Post(req.Forwarded.Endpoint, fields, nil)(ctx)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return nil, refuse(res)
	}
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
	return berth.Errorf(berth.CodeInvalid, "%s sent an answer above %d bytes. Send fewer inputs in one request.", u.who(), MaxForwarded)
}

// forwardError returns the client's error. An upstream without the endpoint answers 404 or
// 405 without naming the model; llama.cpp answers 501.
func (u *Upstream) forwardError(ctx, watched context.Context, req *model.Request, err error) error {
	if r, ok := errors.AsType[*Refusal](err); ok {
		missing := r.Status == http.StatusNotFound && !names(Explain(r), req.Model)
		if missing || r.Status == http.StatusMethodNotAllowed || r.Status == http.StatusNotImplemented {
			return model.NoEndpoint(req.Forwarded.Endpoint, req.Model)
		}
	}
	return u.failure(ctx, watched, req.Model, err, Explain)
}
