package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// callTimeout bounds a request that returns one object.
	callTimeout = 30 * time.Second
	// watchTime is how long the API server keeps a watch open.
	watchTime = 4 * time.Minute
	// maxObject bounds one object or page, in bytes.
	maxObject = 16 << 20
	// pageSize is the number of objects in a page of a list.
	pageSize = 500
	// maxListed bounds the objects of a list, and maxPages its pages, which may be empty.
	maxListed = 200_000
	maxPages  = 2 * maxListed / pageSize
)

// Media types of requests and answers.
const (
	typeJSON    = "application/json"
	typeMerge   = "application/merge-patch+json"
	typeApply   = "application/apply-patch+yaml"
	typePartial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// A client sends requests to an API server. It is safe for concurrent use.
type client struct {
	identity
	http   *http.Client
	stream *http.Client // HTTP/1.1, for connections that become WebSockets
}

func newClient(id identity) *client {
	dial := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	one := id.tls.Clone()
	one.NextProtos = []string{"http/1.1"}
	// a redirect would get the token
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{identity: id,
		http: &http.Client{CheckRedirect: refuse,
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial,
				TLSClientConfig:   id.tls.Clone(),
				ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute,
				MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
				HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second}}},
		stream: &http.Client{CheckRedirect: refuse,
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSClientConfig: one,
				TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute}},
	}
}

func (c *client) close() {
	c.http.CloseIdleConnections()
	c.stream.CloseIdleConnections()
}

// authorize adds the token.
func (c *client) authorize(h http.Header) error {
	if c.token == nil {
		return nil
	}
	text, err := c.token.get()
	if err != nil {
		return err
	}
	h.Set("Authorization", "Bearer "+text)
	return nil
}

// An apiError is the API server's refusal of a request.
type apiError struct {
	status
	verb, path string
}

func (e *apiError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s %s: HTTP status %d", e.verb, e.path, e.Code)
	}
	return fmt.Sprintf("%s %s: %s", e.verb, e.path, inWords(e.Message, wordsLimit))
}

// isCode reports whether err is the API server's answer with an HTTP status.
func isCode(err error, code int) bool {
	var e *apiError
	return errors.As(err, &e) && e.Code == code
}

// isMissing reports whether the API server itself said that the object does not exist. Something
// in front of it may answer 404 too.
func isMissing(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.Code == http.StatusNotFound && e.Kind == "Status" && e.Reason == "NotFound" &&
		e.Details.Name != ""
}

// open sends a request and returns the answer's body, which the caller closes.
func (c *client) open(ctx context.Context, verb, path string, query url.Values, header http.Header,
	body []byte) (io.ReadCloser, error) {
	to := c.server.JoinPath(path)
	to.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, verb, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("User-Agent", "berth")
	if err := c.authorize(r.Header); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp, verb, path)
}

// refusal returns the error of a failed request.
func refusal(resp *http.Response, verb, path string) error {
	e := &apiError{verb: verb, path: path}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == typeJSON {
		_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e.status)
	}
	e.Code = resp.StatusCode
	return e
}

// do sends one object, or nothing, and decodes the answer into out, which may be nil.
func (c *client) do(ctx context.Context, verb, path string, query url.Values, kind string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	header := http.Header{"Accept": {typeJSON}}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
		header.Set("Content-Type", kind)
	}
	return c.decode(ctx, verb, path, query, header, body, out)
}

func (c *client) decode(ctx context.Context, verb, path string, query url.Values, header http.Header, body []byte,
	out any) error {
	answer, err := c.open(ctx, verb, path, query, header, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(answer, maxObject))
		return err
	}
	if err := json.NewDecoder(io.LimitReader(answer, maxObject)).Decode(out); err != nil {
		return fmt.Errorf("%s %s: %w", verb, path, err)
	}
	return nil
}

func (c *client) podsPath() string { return "/api/v1/namespaces/" + c.namespace + "/pods" }

func (c *client) podPath(name string) string { return c.podsPath() + "/" + name }

func (c *client) getPod(ctx context.Context, name string) (*pod, error) {
	p := &pod{}
	if err := c.do(ctx, http.MethodGet, c.podPath(name), nil, "", nil, p); err != nil {
		return nil, err
	}
	return p, nil
}

// deletePod deletes a Pod if it is the one with that uid. A grace of 0 removes the object without
// the node's confirmation that its processes have ended.
func (c *client) deletePod(ctx context.Context, name, uid string, grace *int64) error {
	return c.deletePodAt(ctx, name, meta{UID: uid}, grace)
}

// deletePodAt deletes a Pod if it has that uid and, unless it is empty, that version.
func (c *client) deletePodAt(ctx context.Context, name string, at meta, grace *int64) error {
	return c.deleteAt(ctx, c.podPath(name), at, grace, "")
}

// deleteAt deletes an object if it has that uid and, unless it is empty, that version. The
// propagation "Foreground" keeps the object until those that it owns are gone.
func (c *client) deleteAt(ctx context.Context, path string, at meta, grace *int64, propagation string) error {
	type preconditions struct {
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}
	options := struct {
		APIVersion    string         `json:"apiVersion"`
		Kind          string         `json:"kind"`
		Grace         *int64         `json:"gracePeriodSeconds,omitempty"`
		Preconditions *preconditions `json:"preconditions,omitempty"`
		Propagation   string         `json:"propagationPolicy,omitempty"`
	}{"v1", "DeleteOptions", grace, &preconditions{at.UID, at.ResourceVersion}, propagation}
	return c.do(ctx, http.MethodDelete, path, nil, typeJSON, options, nil)
}

// listPods returns the metadata of the Pods with a label, and the version of the list.
func (c *client) listPods(ctx context.Context, label string) ([]meta, string, error) {
	return c.list(ctx, c.podsPath(), url.Values{"labelSelector": {label}})
}

// list returns the metadata of the objects that match a query, and the version of the list.
func (c *client) list(ctx context.Context, path string, query url.Values) ([]meta, string, error) {
	var all []meta
	query = maps.Clone(query)
	query.Set("limit", strconv.Itoa(pageSize))
	for range maxPages {
		var page partialList
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			return c.decode(ctx, http.MethodGet, path, query, http.Header{"Accept": {typePartial}}, nil, &page)
		}()
		if err != nil {
			return nil, "", err
		}
		for _, p := range page.Items {
			if isName(p.Metadata.Name) {
				all = append(all, p.Metadata)
			}
		}
		switch next := page.Metadata.Continue; {
		case len(all) > maxListed:
			return nil, "", fmt.Errorf("GET %s: the API server lists more than %d objects", path, maxListed)
		case next == "":
			return all, page.Metadata.ResourceVersion, nil
		case next == query.Get("continue"):
			return nil, "", fmt.Errorf("GET %s: the API server lists the same page again", path)
		default:
			query.Set("continue", next)
		}
	}
	return nil, "", fmt.Errorf("GET %s: the API server lists more than %d pages", path, maxPages)
}

// isName reports whether a text can be the name of a Pod. Names become parts of paths.
func isName(s string) bool {
	return len(s) <= 253 && strings.Trim(s, ".") != "" &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// errWatchEnded means that a watch ended without an error: the caller starts another one.
var errWatchEnded = errors.New("the watch ended")

// watchPods calls event with the changes of the Pods that match a query after a version, until it
// returns true. deleted means that the Pod is gone; p is then its last state.
func (c *client) watchPods(ctx context.Context, query url.Values, version string,
	event func(p *pod, deleted bool) (done bool)) error {
	query = maps.Clone(query)
	query.Set("watch", "1")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(watchTime/time.Second)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := c.open(ctx, http.MethodGet, c.podsPath(), query, http.Header{"Accept": {typeJSON}}, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	part := &io.LimitedReader{R: body}
	dec := json.NewDecoder(part)
	for {
		part.N = maxObject
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&e); err != nil && part.N <= 0 {
			return fmt.Errorf("read events: one has more than %d bytes", maxObject)
		} else if errors.Is(err, io.EOF) {
			return errWatchEnded
		} else if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if e.Type == "ERROR" {
			s := &apiError{verb: "WATCH", path: c.podsPath()}
			_ = json.Unmarshal(e.Object, &s.status)
			return s
		}
		p := &pod{}
		if err := json.Unmarshal(e.Object, p); err != nil {
			return fmt.Errorf("decode pod: %w", err)
		}
		if event(p, e.Type == "DELETED") {
			return nil
		}
	}
}

// Waits between attempts to watch.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// await calls done with the state of a Pod, which is nil if there is none, and with each later
// one, until it returns true or an error.
func (c *client) await(ctx context.Context, name string, done func(p *pod) (bool, error)) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		p, err := c.getPod(ctx, name)
		switch {
		case isMissing(err):
			p = nil
		case err != nil:
			return err
		}
		if ok, err := done(p); ok || err != nil {
			return err
		}
		if p != nil {
			var verdict error
			err = c.watchPods(ctx, url.Values{"fieldSelector": {"metadata.name=" + name}}, p.Metadata.ResourceVersion,
				func(p *pod, deleted bool) bool {
					if deleted {
						p = nil
					}
					var ok bool
					ok, verdict = done(p)
					return ok || verdict != nil
				})
			if err == nil {
				return verdict
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// inWords makes a text that a sandbox may have written fit for a log.
func inWords(text string, limit int) string {
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
