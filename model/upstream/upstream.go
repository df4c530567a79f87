// Package upstream holds what providers share that call a vendor over HTTP: address
// and secrets, timeouts, and the meaning of errors.
package upstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-run/berth/egress/proxy"
)

// Options configure how a vendor's server is called.
type Options struct {
	Name    string            // in the configuration, for messages; may be empty
	BaseURL string            // such as http://localhost:8000/v1
	APIKey  string            // if empty, none is sent
	Headers map[string]string // sent with every request; they may hold secrets
	Log     *slog.Logger

	// Proxy overrides the proxy of Proxies, or of the environment without them. A URL without a host means no
	// proxy.
	Proxy   *url.URL
	Proxies *proxy.Selector
	TLS     *tls.Config // default: this machine's certificate authorities

	// HTTPClient replaces the default client, and with it Proxy, TLS and Connect.
	HTTPClient *http.Client
	Connect    time.Duration // timeout to connect; default 10 seconds

	// FirstToken is how long to wait for the first output of an answer.
	// The default is 10 minutes, because some servers load the model first.
	FirstToken time.Duration

	// Silence is the same limit after the first output. The default is 10 minutes,
	// because Ollama sends nothing while a model writes a call.
	Silence time.Duration
}

// An Upstream is a vendor's server with complete options. It is safe for concurrent
// use.
type Upstream struct {
	Options
	Base *url.URL

	secrets *strings.Replacer
}

// New checks the options and fills in the defaults. It does not connect. The
// HTTPClient of the result turns every status above 399 into a *Refusal.
func New(opts Options) (*Upstream, error) {
	opts.APIKey = strings.TrimSpace(opts.APIKey)
	base, err := url.Parse(opts.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		// not quoted: it may hold a password
		return nil, errors.New("the upstream's base URL must be an http or https address")
	}
	opts.Connect = cmp.Or(opts.Connect, 10*time.Second)
	opts.FirstToken = cmp.Or(opts.FirstToken, 10*time.Minute)
	opts.Silence = cmp.Or(opts.Silence, 10*time.Minute)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	client := http.Client{CheckRedirect: stay}
	if opts.HTTPClient != nil {
		client = *opts.HTTPClient
	} else {
		proxies, dialer := opts.Proxies, &net.Dialer{Timeout: opts.Connect, KeepAlive: 30 * time.Second}
		if opts.Proxy != nil {
			proxies = nil
		}
		transport := proxies.Transport(proxy.WithDialer(dialer.DialContext), proxy.WithTLS(opts.TLS))
		transport.MaxIdleConnsPerHost = 64
		if opts.Proxy != nil {
			transport.Proxy = func(*http.Request) (*url.URL, error) { return opts.through(), nil }
		}
		client.Transport = transport
	}
	client.Transport = refusingTransport{cmp.Or(client.Transport, http.DefaultTransport)}
	opts.HTTPClient = &client
	return &Upstream{Options: opts, Base: base, secrets: redactor(&opts, base)}, nil
}

// through returns the proxy, or nil to connect directly.
func (o *Options) through() *url.URL {
	if o.Proxy.Host == "" {
		return nil
	}
	return o.Proxy
}

// stay follows a redirect only within the origin of the first request. net/http would
// send a key in a vendor's own header to any host, and any key from https to http.
func stay(req *http.Request, via []*http.Request) error {
	if from := via[0].URL; req.URL.Scheme != from.Scheme || req.URL.Host != from.Host || req.URL.User != nil ||
		len(via) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// errEmpty is the error for an answer without output, reason or counted tokens. A
// model may choose to output nothing, but then its vendor counts tokens.
var errEmpty = errors.New("the answer is empty")
