package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/embedding"
)

// forwards serves the endpoints that are passed to the upstream of a model. The upstream
// checks the input and the fields unknown to Berth.
type forwards struct{ upstreams *engine.Forwarder }

// inputRule allows any text or list that is not empty, undecoded.
func inputRule(at string, v any) error {
	raw := v.(json.RawMessage)
	switch raw[0] {
	case '"':
		if string(raw) == `""` {
			return rule.Text(1, 0)(at, "")
		}
	case '[':
		if strings.TrimSpace(string(raw[1:min(len(raw), 64)])) == "]" {
			return rule.AtLeastOne(rule.List(rule.Anything, 0))(at, []any{})
		}
	default:
		tree, err := exchange.ParseJSON(raw)
		if err != nil {
			return err
		}
		return rule.WrongType(at, "one of a string or an array", tree)
	}
	return nil
}

var (
	embeddingsRule = rule.OpenObject(rule.Fields{"model": rule.Text(1, 256), "input": inputRule,
		"encoding_format": rule.OneOf(embedding.Float, embedding.Base64),
		"dimensions":      rule.Integer(1, math.MaxInt32), "user": rule.AnyText}, "model", "input")
	moderationsRule = rule.OpenObject(rule.Fields{"model": rule.Text(1, 256), "input": inputRule}, "input")
)

// defaultModeration is the model of a moderation that names none, as at OpenAI.
const defaultModeration = "omni-moderation-latest"

// embeddings serves POST /v1/embeddings.
func (h *forwards) embeddings(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	fields, err := x.DecodeFields(r, "input", embeddingsRule)
	if err != nil {
		return err
	}
	req := engine.ForwardRequest{Usage: engine.UsageEmbedding,
		Forwarded: model.Forwarded{Endpoint: "embeddings", Fields: fields}}
	format, dimensions := "", 0
	for name, to := range map[string]any{"model": &req.Model, "encoding_format": &format, "dimensions": &dimensions} {
		if raw := fields[name]; raw != nil {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("decode %s: %w", name, err) // they were checked
			}
		}
	}
	answer, err := h.embed(r.Context(), c, req)
	if err != nil {
		return err
	}
	if err := embedding.Check(answer, embedding.Inputs(fields["input"])); err != nil {
		return err
	}
	answer, err = embedding.Convert(answer, cmp.Or(format, embedding.Float), dimensions)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, json.RawMessage(answer))
}

// embed forwards a request for embeddings. If the upstream refuses encoding_format, the
// request is sent again without it.
func (h *forwards) embed(ctx context.Context, c berth.Caller, req engine.ForwardRequest) ([]byte, error) {
	answer, err := h.upstreams.Forward(ctx, c, req)
	if req.Forwarded.Fields["encoding_format"] == nil || !refusesFormat(err) {
		return answer, err
	}
	delete(req.Forwarded.Fields, "encoding_format")
	return h.upstreams.Forward(ctx, c, req)
}

// refusesFormat reports whether an upstream refused a request because of encoding_format.
func refusesFormat(err error) bool {
	if berth.ErrorCode(err) != berth.CodeInvalid {
		return false
	}
	return strings.Contains(err.Error(), "encoding_format") || strings.Contains(err.Error(), embedding.Base64)
}

// moderations serves POST /v1/moderations.
func (h *forwards) moderations(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	fields, err := x.DecodeFields(r, "input", moderationsRule)
	if err != nil {
		return err
	}
	req := engine.ForwardRequest{Model: defaultModeration, Usage: engine.UsageModeration,
		Forwarded: model.Forwarded{Endpoint: "moderations", Fields: fields}}
	if raw := fields["model"]; raw != nil {
		if err := json.Unmarshal(raw, &req.Model); err != nil {
			return fmt.Errorf("decode model: %w", err) // it was checked
		}
	}
	answer, err := h.upstreams.Forward(r.Context(), c, req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, json.RawMessage(answer))
}
