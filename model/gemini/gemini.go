// Package gemini is the provider for servers that speak Google's generateContent.
package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// BaseURL is the address of Google's own server.
const BaseURL = "https://generativelanguage.googleapis.com"

// Options configure an upstream. The zero values of the fields below the first suit
// Google.
type Options struct {
	upstream.Options // BaseURL has no version; the default is Google's

	// Version is the version of the API. The default is v1beta. Version v1 lacks JSON
	// Schema, thoughts and their signatures.
	Version string

	// Thinking selects how a model is made to think: "budget", with a number of
	// tokens, or "level". The default is level for Gemini 3 and later, else budget.
	Thinking string
}

// A Provider is one upstream. It is safe for concurrent use.
//
// It does not use the vendor's client, which takes keys from the environment that belong
// to another upstream, writes to the process's log, puts request data into error texts,
// and decodes numbers in arguments as floats.
type Provider struct {
	client *upstream.Client
	opts   Options
	up     *upstream.Upstream
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)
)

// New returns a provider. It does not connect.
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
	if err := upstream.Check("thinking", opts.Thinking, "budget", "level"); err != nil {
		return nil, err
	}
	header := http.Header{}
	if up.APIKey != "" {
		header.Set("X-Goog-Api-Key", up.APIKey)
	}
	return &Provider{client: up.Client(header), opts: opts, up: up}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	body, err := p.request(req)
	if err != nil {
		return upstream.Fail(err)
	}
	return p.up.Stream(ctx, upstream.Turn{
		Model:   req.Model,
		Send:    p.client.Post(p.opts.Version+"/"+resource(req.Model)+":streamGenerateContent?alt=sse", body, nil),
		Answer:  func() upstream.Answer { return newAnswer(req, p.up.Log) },
		Explain: explain,
	})
}

// resource returns the path of a model: models/NAME, or its name if that is a path.
func resource(name string) string {
	if !strings.Contains(name, "/") {
		name = "models/" + name
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		if parts[i] = url.PathEscape(parts[i]); parts[i] == "." || parts[i] == ".." {
			parts[i] = strings.ReplaceAll(parts[i], ".", "%2E") // it must not leave the API's path
		}
	}
	return strings.Join(parts, "/")
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	send := p.client.Get(p.opts.Version + "/models?pageSize=1000")
	var page struct {
		Models []struct {
			Name    string   `json:"name"` // models/gemini-…
			Methods []string `json:"supportedGenerationMethods"`
		} `json:"models"`
	}
	if err := p.up.List(ctx, send, explain, &page); err != nil {
		return nil, err
	}
	all := make([]berth.Model, 0, len(page.Models))
	for _, m := range page.Models {
		if len(m.Methods) == 0 || strings.Contains(strings.Join(m.Methods, " "), "generateContent") {
			all = append(all, berth.Model{ID: strings.TrimPrefix(m.Name, "models/"), Object: "model",
				OwnedBy: "google"})
		}
	}
	return all, nil
}

// explain decodes {"error":{"code","message","status","details"}}, or a list of that.
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
	_ = json.Unmarshal(r.Body, &body) // a gateway's error may have another form
	for _, d := range body.Error.Details {
		if d.Reason == "API_KEY_INVALID" {
			c.Status = http.StatusUnauthorized
		}
		if after, err := time.ParseDuration(d.RetryDelay); err == nil {
			c.RetryAfter = after
		}
	}
	if body.Error.Status == "FAILED_PRECONDITION" { // the region or billing, not the request
		c.Status = http.StatusForbidden
	}
	c.Param = paramOf(c.Message)
	return c
}

// paramOf returns the name in Responses of the field that a message mentions, or "".
func paramOf(message string) string {
	for _, field := range []struct{ word, param string }{
		{"response_json_schema", "text.format"}, {"responseJsonSchema", "text.format"},
		{"thinking", "reasoning.effort"},
		{"function_declarations", "tools"}, {"functionDeclarations", "tools"}, {"temperature", "temperature"},
		{"top_p", "top_p"},
		{"max_output_tokens", "max_output_tokens"}, {"contents", "input"}, {"function call", "input"},
		{"function response", "input"},
	} {
		if strings.Contains(message, field.word) {
			return field.param
		}
	}
	return ""
}
