package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A named provider lists models and answers no turns.
type named struct {
	name   string
	models []string
	err    error
}

func (*named) Stream(context.Context, *model.Request) iter.Seq2[model.Delta, error] { return nil }

func (n *named) Models(context.Context) ([]berth.Model, error) {
	var all []berth.Model
	for _, m := range n.models {
		all = append(all, berth.Model{ID: m, Object: "model"})
	}
	return all, n.err
}

func TestRouter(t *testing.T) {
	a := &named{name: "a", models: []string{"a-1", "b-1", "vendor/x"}}
	b := &named{name: "b", models: []string{"b-1", "b-2"}}
	silent := &named{name: "silent", err: errors.New("down")}
	r, err := model.NewRouter(slog.New(slog.DiscardHandler),
		model.Rule{Match: "alias", Provider: a, Upstream: "a-1"},
		model.Rule{Match: "b-*", Provider: b, Window: 4096},
		model.Rule{Match: "vendor*", Provider: a},
		model.Rule{Match: "gone-*", Provider: silent})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"alias": "a a-1", "b-7": "b b-7", "vendor/x": "a vendor/x",
		"gone-1": "silent gone-1"} {
		p, upstream, err := r.Route(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprintf("%s %s", p.(*named).name, upstream); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]int{"b-7": 4096, "alias": 0, "a-1": 0} {
		if got := r.Window(name); got != want {
			t.Errorf("%s: got a window of %d tokens, want %d", name, got, want)
		}
	}
	_, _, err = r.Route("a-1")
	want := &berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Param: "model",
		Message: "The model `a-1` does not exist or you do not have access to it."}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Errorf("a name without a rule (-want +got):\n%s", diff)
	}
	models, err := r.Models(t.Context())
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	if diff := cmp.Diff([]string{"alias", "b-1", "b-2", "vendor/x"}, ids); diff != "" || err != nil {
		t.Errorf("models (-want +got), error %v:\n%s", err, diff)
	}
	if _, err := model.NewRouter(nil, model.Rule{Match: "["}); err == nil {
		t.Error("a broken pattern was accepted")
	}
}

// A provider that does not answer delays the list no longer than listTimeout.
func TestModelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := model.NewRouter(slog.New(slog.DiscardHandler),
			model.Rule{Match: "x", Provider: &named{}}, model.Rule{Match: "*", Provider: hung{}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		models, err := r.Models(t.Context())
		if len(models) != 1 || models[0].ID != "x" || err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("got %v, %v after %v", models, err, time.Since(start))
		}
	})
}

// A model is listed with the description of its first rule.
func TestModelDescriptions(t *testing.T) {
	yes := true
	r, err := model.NewRouter(slog.New(slog.DiscardHandler),
		model.Rule{Match: "coder", Provider: &named{}, Window: 8192,
			About: berth.ModelBerth{Provider: "chat", Modalities: []string{"text", "image"}, Tools: &yes}},
		model.Rule{Match: "*", Provider: &named{models: []string{"coder", "other"}},
			About: berth.ModelBerth{Provider: "anthropic"}})
	if err != nil {
		t.Fatal(err)
	}
	models, err := r.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(models)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"id":"coder","object":"model","created":0,"owned_by":"berth","berth":{"provider":"chat","context_window":8192,"modalities":["text","image"],"tools":true}},` +
		`{"id":"other","object":"model","created":0,"owned_by":"","berth":{"provider":"anthropic"}}]`
	if string(raw) != want {
		t.Errorf("got\n%s, want\n%s", raw, want)
	}
}

// A hung provider returns only when its context ends.
type hung struct{}

func (hung) Stream(context.Context, *model.Request) iter.Seq2[model.Delta, error] { return nil }

func (hung) Models(ctx context.Context) ([]berth.Model, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestRetryAfter(t *testing.T) {
	inner := &berth.Error{Code: berth.CodeRateLimited}
	err := fmt.Errorf("wrapped: %w", model.WithRetryAfter(inner, time.Second))
	if d, ok := model.RetryAfter(err); !ok || d != time.Second || berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("got %v, %v, %v", d, ok, berth.ErrorCode(err))
	}
	if _, ok := model.RetryAfter(inner); ok {
		t.Error("got a time from an error without one")
	}
}
