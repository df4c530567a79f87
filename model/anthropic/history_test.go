package anthropic_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

func FuzzHistory(f *testing.F) {
	double := modeltest.NewAnthropicHandler(modeltest.Always(modeltest.Reply(model.Text{Text: "ok"},
		model.Finish{Reason: model.FinishStop})))
	p, err := anthropic.New(anthropic.Options{Options: upstream.Options{BaseURL: "http://double",
		HTTPClient: &http.Client{Transport: modeltest.Direct{Handler: double}}}})
	if err != nil {
		f.Fatal(err)
	}
	modeltest.FuzzHistory(f, p, double.Double)
}

// Keys of the environment belong to another upstream.
func TestHeaders(t *testing.T) {
	for _, name := range []string{"API_KEY", "AUTH_TOKEN", "BASE_URL", "PROFILE", "CUSTOM_HEADERS"} {
		t.Setenv("ANTHROPIC_"+name, "x-env: http://secret-of-the-environment")
	}
	double := modeltest.NewAnthropicServer(t, ok)
	for _, base := range []string{double.URL, double.URL + "/", double.URL + "/v1", double.URL + "/v1/"} {
		p, err := anthropic.New(anthropic.Options{Options: upstream.Options{BaseURL: base,
			Headers: map[string]string{"X-Title": "Berth"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modeltest.Collect(t, p, &model.Request{Model: "m", Items: []berth.Item{user("hi")}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, sent := range double.Requests() {
		for k, v := range sent.Header {
			if k == "X-Api-Key" || k == "Authorization" || strings.Contains(strings.Join(v, ""), "secret-of") {
				t.Errorf("without a key: sent %s: %s", k, v)
			}
		}
		if sent.Header.Get("X-Title") != "Berth" {
			t.Errorf("X-Title: got %q", sent.Header.Get("X-Title"))
		}
	}
}

func TestModels(t *testing.T) {
	p, double := open(t, ok)
	double.Models = []string{"claude-b", "claude-a"}
	got, err := p.Models(t.Context())
	want := []berth.Model{{ID: "claude-b", Object: "model", Created: 1700000000, OwnedBy: "anthropic"},
		{ID: "claude-a", Object: "model", Created: 1700000000, OwnedBy: "anthropic"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, models (-want +got):\n%s", err, diff)
	}
	double.Key = "another"
	if _, err := p.Models(t.Context()); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("with a wrong key: got %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, opts := range []anthropic.Options{{Options: upstream.Options{BaseURL: "localhost"}}, {Thinking: "much"},
		{Structured: "xml"}, {Cache: "1d"}} {
		if _, err := anthropic.New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
	if _, err := anthropic.New(anthropic.Options{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
