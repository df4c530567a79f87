// Package gemini asks models that speak Google's generateContent.
package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// BaseURL is where Google's own server is.
const BaseURL = "https://generativelanguage.googleapis.com"

// Options describe an upstream. Those below the first say where servers differ;
// their zero values suit Google's.
type Options struct {
	upstream.Options // BaseURL has no version; the default is Google's

	// Version is the API's. The default is v1beta, which has what v1 lacks: schemas in
	// JSON Schema, thoughts and their signatures.
	Version string

	// Thinking is how a model is asked to think: "budget", with a number of tokens,
	// or "level". The default is level from Gemini 3 on, and budget before.
	Thinking string
}

// A Provider is one upstream. It is safe for concurrent use.
//
// It uses the vendor's own types for what is configured, and not its client, which
// takes keys from the environment that belong to another upstream, writes to the
// process's log, puts what it was given into the texts of errors, and reads numbers
// in arguments as floats.
type Provider struct {
	opts Options
	up   *upstream.Upstream
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)
)

// New returns a provider. Nothing is connected yet.
func New(opts Options) (*Provider, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	if opts.Version == "" {
		opts.Version = "v1beta"
	}
	opts.BaseURL = strings.TrimSuffix(strings.TrimRight(opts.BaseURL, "/"), "/"+opts.Version)
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	if t := opts.Thinking; t != "" && t != "budget" && t != "level" {
		return nil, fmt.Errorf("%q must be \"budget\" or \"level\"", t)
	}
	return &Provider{opts: opts, up: up}, nil
}

// ask sends a request to a path of the API; body may be nil.
func (p *Provider) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.opts.BaseURL+"/"+p.opts.Version+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.up.APIKey != "" {
		req.Header.Set("X-Goog-Api-Key", p.up.APIKey)
	}
	for k, v := range p.up.Headers {
		req.Header.Set(k, v)
	}
	return p.up.HTTPClient.Do(req)
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	var raw []byte
	body, err := p.request(req)
	if err == nil {
		raw, err = json.Marshal(body)
	}
	if err != nil {
		return func(yield func(model.Delta, error) bool) { yield(nil, err) }
	}
	return p.up.Ask(ctx, upstream.Question{
		Model: req.Model,
		Send: func(ctx context.Context) (*http.Response, error) {
			return p.ask(ctx, http.MethodPost, resource(req.Model)+":streamGenerateContent?alt=sse", raw)
		},
		Read: func(w *upstream.Watch) iter.Seq2[model.Delta, error] {
			return newAnswer(req, p.up.Log).read(w)
		},
		Explain: explain,
	})
}

// resource is the path of a model: models/gemini-…, or what its name says.
func resource(name string) string {
	if !strings.Contains(name, "/") {
		name = "models/" + name
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	body, err := p.up.Get(ctx, func(ctx context.Context) (*http.Response, error) {
		return p.ask(ctx, http.MethodGet, "models?pageSize=1000", nil)
	}, explain)
	if err != nil {
		return nil, err
	}
	var page struct {
		Models []struct {
			Name    string   `json:"name"` // models/gemini-…
			Methods []string `json:"supportedGenerationMethods"`
		} `json:"models"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, p.up.Broken(fmt.Errorf("the list of models: %w", err))
	}
	all := make([]berth.Model, 0, len(page.Models))
	for _, m := range page.Models {
		if len(m.Methods) == 0 || strings.Contains(strings.Join(m.Methods, " "), "generateContent") {
			all = append(all, berth.Model{ID: strings.TrimPrefix(m.Name, "models/"), Object: "model", OwnedBy: "google"})
		}
	}
	return all, nil
}

// explain reads {"error":{"code","message","status","details"}}, which may stand in
// a list.
func explain(r *upstream.Refusal) upstream.Complaint {
	if list := bytes.TrimSpace(r.Body); bytes.HasPrefix(list, []byte("[")) {
		r.Body = bytes.TrimSuffix(list[1:], []byte("]"))
	}
	c := upstream.Explain(r)
	var body struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				Reason     string `json:"reason"`
				RetryDelay string `json:"retryDelay"` // 7s
			} `json:"details"`
		} `json:"error"`
	}
	_ = json.Unmarshal(r.Body, &body) // a gateway's may have another form
	for _, d := range body.Error.Details {
		if d.Reason == "API_KEY_INVALID" {
			c.Status = http.StatusUnauthorized
		}
		if after, err := time.ParseDuration(d.RetryDelay); err == nil {
			c.RetryAfter = after
		}
	}
	if body.Error.Status == "FAILED_PRECONDITION" { // the place or the bill, not the request
		c.Status = http.StatusForbidden
	}
	c.Param = paramOf(c.Message)
	return c
}

// paramOf is the name in Responses of the field that a message is about.
func paramOf(message string) string {
	for _, field := range []struct{ word, param string }{
		{"response_json_schema", "text.format"}, {"responseJsonSchema", "text.format"}, {"thinking", "reasoning.effort"},
		{"function_declarations", "tools"}, {"functionDeclarations", "tools"}, {"temperature", "temperature"}, {"top_p", "top_p"},
		{"max_output_tokens", "max_output_tokens"}, {"contents", "input"}, {"function call", "input"}, {"function response", "input"},
	} {
		if strings.Contains(message, field.word) {
			return field.param
		}
	}
	return ""
}
