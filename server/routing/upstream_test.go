package routing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// route reads a configuration and returns the provider of the model m.
func route(t *testing.T, text string) model.Provider {
	t.Helper()
	c, err := configOf(t, text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(c, nil, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := r.Router.Route("m")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var hello = modeltest.Always(modeltest.Reply(model.Text{Text: "hello"}, model.Finish{Reason: model.FinishStop,
	Usage: berth.Usage{InputTokens: 1000, OutputTokens: 100, TotalTokens: 1100}}))

func greeting() *model.Request {
	return &model.Request{Model: "m",
		Items: []berth.Item{berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
			Content: []berth.Content{{Type: "input_text", Text: "hi"}}})}}
}

// Over real sockets: a group uses the second key, the next upstream, that upstream's name for the
// model, and its price.
func TestUpstreams(t *testing.T) {
	t.Setenv("BERTH_TEST_KEY_A", "sk-wrong-0123456789")
	t.Setenv("BERTH_TEST_KEY_B", modeltest.Key)
	first := modeltest.NewChatServer(t,
		modeltest.Always(modeltest.Turn{Refusal: &modeltest.Refusal{Status: 503, Message: "busy"}}))
	second := modeltest.NewChatServer(t, func(n int, heard *modeltest.Request) modeltest.Turn {
		if heard.Header.Get("Authorization") != "Bearer "+modeltest.Key {
			return modeltest.Turn{Refusal: &modeltest.Refusal{Status: 401, Message: "who?"}}
		}
		return hello(n, heard)
	})
	p := route(t, `
upstreams:
  first: {base_url: "`+first.URL+`", api_key: "`+modeltest.Key+`"}
  second: {base_url: "`+second.URL+`", api_key_envs: [BERTH_TEST_KEY_A, BERTH_TEST_KEY_B], prices: {"vendor/*": {input: 2.5, output: 10}}}
models:
  - {match: m, upstreams: [{name: first}], fallbacks: [{name: second, model: vendor/m-1}]}
`)
	a, err := modeltest.Collect(t, p, greeting())
	if err != nil || a.Text != "hello" {
		t.Fatalf("got %+v, %v", a, err)
	}
	if got := a.Finish; got.Origin != (model.Origin{Upstream: "second", Key: "BERTH_TEST_KEY_B",
		Model: "vendor/m-1"}) || got.Cost == nil || got.Cost.Value.String() != "0.0035" {
		t.Errorf("got %+v, cost %v", got.Origin, got.Cost)
	}
	heard := second.Requests()
	if len(first.Requests()) != 1 || heard[len(heard)-1].Model != "vendor/m-1" {
		t.Errorf("the first upstream got %d requests, the second one for %s", len(first.Requests()),
			heard[len(heard)-1].Model)
	}
}

// Cancelling a turn closes its connections.
func TestLeavingUpstreams(t *testing.T) {
	asked := make(chan struct{}, 2)
	waiting := func(int, *modeltest.Request) modeltest.Turn {
		asked <- struct{}{}
		return modeltest.Reply(modeltest.Wait(nil))
	}
	first, second := modeltest.NewChatServer(t, waiting), modeltest.NewChatServer(t, waiting)
	p := route(t, `
upstreams:
  first: {base_url: "`+first.URL+`"}
  second: {base_url: "`+second.URL+`"}
models:
  - {match: m, upstreams: [{name: first}], fallbacks: [{name: second}], hedge_after: 1ms}
`)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		<-asked
		cancel(cause)
	}()
	var err error
	for _, err = range p.Stream(ctx, greeting()) {
	}
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	for _, double := range []*modeltest.Double{first.Double, second.Double} {
		<-double.Left // otherwise the connection stays open, and the test does not end
	}
}

// An upstream's private authority and client certificate are used only where they are configured.
func TestUpstreamTLS(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(`data: {"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}` +
			"\n\ndata: [DONE]\n\n"))
	}))
	up.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	up.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	up.StartTLS()
	defer up.Close()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := x509.MarshalPKCS8PrivateKey(up.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, private := write("ca.pem", "CERTIFICATE", up.Certificate().Raw), write("key.pem", "PRIVATE KEY", key)
	for conf, want := range map[string]berth.Code{
		"":                           berth.CodeUpstream,
		"tls: {ca_file: " + ca + "}": berth.CodeUpstream, // without a client certificate
		"tls: {ca_file: " + ca + ", cert_file: " + ca + ", key_file: " + private + "}": "",
		"tls: {insecure: true, cert_file: " + ca + ", key_file: " + private + "}":      "",
	} {
		p := route(t,
			`{upstreams: {a: {base_url: "`+up.URL+`", `+conf+`}}, models: [{match: m, upstreams: [{name: a}]}]}`)
		if a, err := modeltest.Collect(t, p, greeting()); berth.ErrorCode(err) != want || err == nil &&
			a.Text != "hello" {
			t.Errorf("%s: got %+v, %v", conf, a, err)
		}
	}
	c, err := configOf(t, `upstreams: {a: {base_url: "`+up.URL+`", tls: {ca_file: /no/such/file}}}`)
	if err == nil {
		_, err = Open(c, nil, slog.New(slog.DiscardHandler))
	}
	if err == nil || !strings.Contains(err.Error(), "upstreams.a.tls.ca_file") {
		t.Errorf("missing file: got %v", err)
	}
}

// An upstream uses its configured proxy, whose password does not appear in errors.
func TestUpstreamProxy(t *testing.T) {
	double := modeltest.NewChatServer(t, hello)
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Proxy-Authorization") == "" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		r.RequestURI = ""
		r.Header.Del("Proxy-Authorization")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	}))
	defer proxy.Close()
	through := strings.Replace(proxy.URL, "http://", "http://berth:pass-0123456789@", 1)
	conf := func(proxy string) string {
		return `{upstreams: {a: {base_url: "` + double.URL + `", api_key: "` + modeltest.Key + `", proxy: "` + proxy +
			`"}}, models: [{match: m, upstreams: [{name: a}]}]}`
	}
	if a, err := modeltest.Collect(t, route(t, conf(through)), greeting()); err != nil || a.Text != "hello" ||
		asked != 1 {
		t.Errorf("got %+v, %v; the proxy got %d requests", a, err, asked)
	}
	if _, err := modeltest.Collect(t, route(t, conf("none")), greeting()); err != nil || asked != 1 {
		t.Errorf("without a proxy: got %v; the proxy got %d requests", err, asked)
	}
	_, err := modeltest.Collect(t, route(t, conf("http://berth:pass-0123456789@127.0.0.1:1")), greeting())
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeUpstream ||
		strings.Contains(e.Message+e.Err.Error(), "pass-0123456789") {
		t.Errorf("missing proxy: got %v", err)
	}
}

// The environment variable of a key that is missing is named.
func TestMissingKey(t *testing.T) {
	t.Setenv("BERTH_TEST_THERE", "x")
	c, err := configOf(t, "upstreams: {a: {provider: openai, api_key_envs: [BERTH_TEST_THERE, BERTH_TEST_MISSING]}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c, nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(),
		"upstreams.a.api_key_envs: BERTH_TEST_MISSING is not set") {
		t.Errorf("missing key: got %v", err)
	}
}
