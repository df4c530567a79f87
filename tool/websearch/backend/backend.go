// Package backend asks search services for web pages: SearXNG, Brave, Tavily, or a service of
// the operator's own. What they answer is untrusted.
package backend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
)

// The names of the services.
const (
	SearXNG = "searxng"
	Brave   = "brave"
	Tavily  = "tavily"
	HTTP    = "http"
)

// Names are all names, sorted.
var Names = []string{Brave, HTTP, SearXNG, Tavily}

// A Backend searches the web. It is safe for concurrent use.
type Backend interface {
	// Search returns at most query.Limit pages, the best first. Each has an http or https
	// URL and text in UTF-8. The pages may be outside query.Domains. An error that is a
	// Failure is for the model; no error contains the service's key or address.
	Search(ctx context.Context, query Query) ([]berth.WebSearchResult, error)
}

// A Query is one search.
type Query struct {
	Text     string
	Limit    int                      // of results
	Domains  []string                 // search these and their subdomains only; empty means all
	Location *berth.WebSearchLocation // of the user; may be nil
}

// A Failure is why a service found nothing, in words for the model.
type Failure string

func (f Failure) Error() string { return string(f) }

// Options configure a Backend.
type Options struct {
	Name    string        // one of Names
	URL     string        // of the service; required for SearXNG and HTTP, default the vendor's
	Key     string        // required for Brave and Tavily
	Timeout time.Duration // of one search; default 20 s

	Transport http.RoundTripper // default: http.DefaultTransport
	Log       *slog.Logger      // default slog.Default
}

// New returns the backend that the options describe. Its errors begin with the name of the
// option that is wrong.
func New(o Options) (Backend, error) {
	makers := map[string]struct {
		usual   string // URL
		needKey bool
		make    func(service) Backend
	}{
		SearXNG: {"", false, func(s service) Backend { return searxng{s} }},
		Brave:   {"https://api.search.brave.com/res/v1/web/search", true, func(s service) Backend { return brave{s} }},
		Tavily:  {"https://api.tavily.com/search", true, func(s service) Backend { return tavily{s} }},
		HTTP:    {"", false, func(s service) Backend { return customService{s} }},
	}
	m, ok := makers[o.Name]
	switch {
	case !ok:
		return nil, fmt.Errorf("backend: %q is not one of %s", o.Name, strings.Join(Names, ", "))
	case o.URL == "" && m.usual == "":
		return nil, fmt.Errorf("url is required for %s", o.Name)
	case o.Key == "" && m.needKey:
		return nil, fmt.Errorf("api_key or api_key_env is required for %s", o.Name)
	}
	if o.URL == "" {
		o.URL = m.usual
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// omits the value, which may contain a password
		return nil, errors.New("url must be an http or https address, such as http://localhost:8888")
	}
	if o.Timeout <= 0 {
		o.Timeout = 20 * time.Second
	}
	client := &http.Client{Timeout: o.Timeout, Transport: o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return m.make(service{url: u, key: o.Key, client: client, log: cmp.Or(o.Log, slog.Default())}), nil
}

// Limits of what a service answers, in bytes.
const (
	maxAnswer = 8 << 20
	maxURL    = 2 << 10
	maxTitle  = 300
	maxText   = 16 << 10
)

// A service is the address of a search service.
type service struct {
	url    *url.URL
	key    string
	client *http.Client
	log    *slog.Logger
}

// get sends parameters in the query and decodes the JSON answer into out.
func (s service) get(ctx context.Context, path string, parameters url.Values, header http.Header, out any) error {
	u := *s.url
	if path != "" && !strings.HasSuffix(u.Path, path) {
		u.Path = strings.TrimSuffix(u.Path, "/") + path
	}
	values := u.Query()
	for name := range parameters {
		values.Set(name, parameters.Get(name))
	}
	u.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return errors.New("make request to search service") // the cause contains the address
	}
	return s.do(req, header, out)
}

// post sends body as JSON and decodes the JSON answer into out. It sends the key as a bearer
// token.
func (s service) post(ctx context.Context, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode search: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(raw))
	if err != nil {
		return errors.New("make request to search service")
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if s.key != "" {
		header.Set("Authorization", "Bearer "+s.key)
	}
	return s.do(req, header, out)
}

func (s service) do(req *http.Request, header http.Header, out any) error {
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "Berth")
	resp, err := s.client.Do(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			return cause
		}
		if failed, ok := errors.AsType[*url.Error](err); ok && failed.Timeout() {
			return Failure("The search service did not answer in time.")
		}
		return Failure("The search service could not be reached.")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Failure(fmt.Sprintf("The search service answered %d (%s).", resp.StatusCode,
			http.StatusText(resp.StatusCode)))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case context.Cause(req.Context()) != nil:
		return context.Cause(req.Context())
	case err != nil:
		return Failure("The answer of the search service did not arrive whole.")
	case len(raw) > maxAnswer:
		return Failure(fmt.Sprintf("The search service sent more than %d bytes.", maxAnswer))
	case tooMany(raw):
		return Failure("The search service sent too many JSON values.")
	case json.Unmarshal(raw, out) != nil:
		return Failure("The search service did not answer with the JSON that was expected.")
	}
	return nil
}

// tooMany reports whether an answer would take far more memory than its text.
func tooMany(answer []byte) bool {
	_, err := jsonscan.Check(answer, jsonscan.MaxValues(len(answer)), jsonscan.MaxDepth)
	return err != nil
}

// A list holds the elements of a JSON array that can be decoded. One that cannot must not
// cost the others.
type list[T any] struct {
	elements  []T
	malformed malformedElements
}

// malformedElements are elements that could not be decoded.
type malformedElements struct {
	count int
	first error
}

func (l *list[T]) UnmarshalJSON(raw []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for i, one := range all {
		var element T
		if err := json.Unmarshal(one, &element); err == nil {
			l.elements = append(l.elements, element)
			continue
		} else if l.malformed.count++; l.malformed.first == nil {
			l.malformed.first = fmt.Errorf("result %d: %w", i+1, err)
		}
	}
	return nil
}

// checked returns the results that can be shown, at most limit of them, bounded in size. It
// logs that others were left out. It fails if all results were malformed.
func (s service) checked(found []berth.WebSearchResult, bad malformedElements, limit int) ([]berth.WebSearchResult,
	error) {
	if bad.count > 0 {
		s.log.Warn("left out malformed results of the search service", "count", bad.count, "first", bad.first)
		if len(found) == 0 {
			return nil, Failure(
				fmt.Sprintf(
					"None of the %d results of the search service can be used: they do not have the form that was expected.",
					bad.count))
		}
	}
	found = slices.DeleteFunc(found, func(r berth.WebSearchResult) bool {
		u, err := url.Parse(r.URL)
		return err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(r.URL) > maxURL
	})
	found = found[:min(len(found), limit)]
	for i, r := range found {
		found[i].Title = cut(strings.Join(strings.Fields(r.Title), " "), maxTitle)
		found[i].Text = cut(strings.TrimSpace(r.Text), maxText)
		found[i].Published = cut(strings.Join(strings.Fields(r.Published), " "), 64)
	}
	return found, nil
}

// cut returns the first bytes of a text, whole characters.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "")
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// onlyIn adds the domains to a query in the syntax that search engines share.
func onlyIn(text string, domains []string) string {
	if len(domains) == 0 {
		return text
	}
	sites := make([]string, len(domains))
	for i, d := range domains {
		sites[i] = "site:" + d
	}
	if len(sites) == 1 {
		return text + " " + sites[0]
	}
	return text + " (" + strings.Join(sites, " OR ") + ")"
}
