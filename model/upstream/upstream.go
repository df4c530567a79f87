// Package upstream is what providers share that ask a vendor over HTTP: where it
// is and with which secrets, how long to wait for it, and what its errors mean.
package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Options say where a vendor is and how it is asked.
type Options struct {
	Name    string            // in the configuration, for messages; empty has none
	BaseURL string            // such as http://localhost:8000/v1
	APIKey  string            // empty sends none
	Headers map[string]string // sent with every request; they may hold secrets
	Log     *slog.Logger

	Proxy *url.URL    // one without a host is none; default: what the environment says
	TLS   *tls.Config // default: this machine's certificate authorities

	HTTPClient *http.Client  // default: one of its own; it then has its own proxy and TLS, too
	Connect    time.Duration // to connect, unless HTTPClient is given; default 10 seconds
	FirstToken time.Duration // without a sign of life before the first word; default 10 minutes, for models that load
	Silence    time.Duration // the same after it; default 10 minutes: Ollama is silent while a model writes a call
}

// An Upstream is a vendor's server. Its options are complete. It is safe for
// concurrent use.
type Upstream struct {
	Options
	Base *url.URL

	secrets *strings.Replacer
}

// New checks the options and fills in the defaults. Nothing is connected yet. Its
// HTTPClient turns every status above 399 into a *Refusal.
func New(opts Options) (*Upstream, error) {
	opts.APIKey = strings.TrimSpace(opts.APIKey)
	base, err := url.Parse(opts.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("the upstream's base URL must be an http or https address") // without it: it may hold a password
	}
	opts.Connect = cmp.Or(opts.Connect, 10*time.Second)
	opts.FirstToken = cmp.Or(opts.FirstToken, 10*time.Minute)
	opts.Silence = cmp.Or(opts.Silence, 10*time.Minute)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	client := http.Client{CheckRedirect: stay}
	if opts.HTTPClient != nil {
		client = *opts.HTTPClient
	} else {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: opts.Connect, KeepAlive: 30 * time.Second}).DialContext
		transport.MaxIdleConnsPerHost = 64
		if opts.Proxy != nil {
			transport.Proxy = func(*http.Request) (*url.URL, error) { return opts.through(), nil }
		}
		if opts.TLS != nil {
			transport.TLSClientConfig = opts.TLS.Clone()
		}
		client.Transport = transport
	}
	client.Transport = refusing{cmp.Or(client.Transport, http.DefaultTransport)}
	opts.HTTPClient = &client
	return &Upstream{Options: opts, Base: base, secrets: redactor(&opts, base)}, nil
}

// through is the proxy, nil if there shall be none.
func (o *Options) through() *url.URL {
	if o.Proxy.Host == "" {
		return nil
	}
	return o.Proxy
}

// stay follows a redirection only within the origin that was asked: net/http would take
// a key that is in a header of the vendor's own along to any host, and any key from https
// to http.
func stay(req *http.Request, via []*http.Request) error {
	if from := via[0].URL; req.URL.Scheme != from.Scheme || req.URL.Host != from.Host || len(via) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// errEmpty is what is wrong with an answer that says nothing, gives no reason for it, and
// counts no tokens. A model may choose to add nothing, but its vendor counts that.
var errEmpty = errors.New("the answer is empty")

// A Question is one request to a vendor.
type Question struct {
	Model string // for errors

	// Send sends it and returns the answer's beginning.
	Send func(ctx context.Context) (*http.Response, error)

	// Read yields what the answer says, and its Finish or an error. It tells w how
	// far the answer has come.
	Read func(w *Watch) iter.Seq2[model.Delta, error]

	// Explain reads the vendor's errors.
	Explain func(*Refusal) Complaint
}

// Ask asks, and yields the answer as model.Provider promises it.
func (u *Upstream) Ask(ctx context.Context, q Question) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		watched, w := newWatch(ctx, u.FirstToken, u.Silence)
		defer w.stop()
		fail := func(err error) { yield(nil, u.failure(ctx, watched, q.Model, err, q.Explain)) }
		res, err := q.Send(watched)
		if err != nil {
			fail(err)
			return
		}
		defer res.Body.Close()
		if res.StatusCode/100 != 2 {
			fail(refuse(res))
			return
		}
		w.watch(res.Body)
		unreadable := func(err error) error {
			if what := w.mismatch(res); what != "" {
				return &mismatch{status: res.StatusCode, what: what, err: err}
			}
			return err
		}
		said := false
		for d, err := range q.Read(w) {
			finish, over := d.(model.Finish)
			if err == nil && over && !said && finish.Reason == model.FinishStop && finish.Usage.OutputTokens == 0 {
				err = errEmpty
			}
			if err != nil {
				fail(unreadable(err))
				return
			}
			said = said || !over
			if !yield(d, nil) {
				return
			}
		}
	}
}

// maxList bounds the answer to a question that does not stream, in bytes.
const maxList = 8 << 20

// Get sends a request whose answer does not stream and returns its body.
func (u *Upstream) Get(ctx context.Context, send func(ctx context.Context) (*http.Response, error), explain func(*Refusal) Complaint) ([]byte, error) {
	res, err := send(ctx)
	if err != nil {
		return nil, u.failure(ctx, ctx, "", err, explain)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return nil, u.failure(ctx, ctx, "", refuse(res), explain)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	if err != nil {
		return nil, u.failure(ctx, ctx, "", err, explain)
	}
	return body, nil
}

// Models reads a list of models in OpenAI's form.
func (u *Upstream) Models(body []byte) ([]berth.Model, error) {
	var page struct {
		Data []struct {
			ID      string  `json:"id"`
			Created float64 `json:"created"` // a whole number, except where it is not
			OwnedBy string  `json:"owned_by"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, u.Broken(fmt.Errorf("the list of models: %w", err))
	}
	all := make([]berth.Model, 0, len(page.Data))
	for _, m := range page.Data {
		all = append(all, berth.Model{ID: m.ID, Object: "model", Created: int64(m.Created), OwnedBy: m.OwnedBy})
	}
	return all, nil
}

// Broken is the error for an answer that cannot be read.
func (u *Upstream) Broken(err error) error {
	return &berth.Error{Code: berth.CodeUpstream, Err: errors.New(u.Show(err.Error())),
		Message: u.who() + " sent an answer that cannot be read; is its base_url right?"}
}
