package balance

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Encrypted reasoning goes back only to the upstream that encrypted it.
func TestStamps(t *testing.T) {
	n := &notes{}
	reasoning := item(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"secret.of.a"}`)
	sealed := item(`{"type":"reasoning","summary":[],"encrypted_content":"berth.vendor.1.abc"}`)
	a := open(t, n, UpstreamOptions{Name: "a"}, func(_ context.Context, _ *model.Request, yield func(model.Delta,
		error) bool) {
		_ = yield(model.Item{Item: reasoning}, nil) && yield(model.Item{Item: sealed}, nil) && yield(finished, nil)
	})
	b := open(t, n, UpstreamOptions{Name: "b"}, answers("b"))
	g := group(t, Options{Primaries: []Target{{Upstream: a}}, Fallbacks: []Target{{Upstream: b}}})
	var items []berth.Item
	for d := range g.Stream(t.Context(), request()) {
		if it, ok := d.(model.Item); ok {
			items = append(items, it.Item)
		}
	}
	if len(items) != 2 || encrypted(items[0]) == encrypted(reasoning) || encrypted(items[1]) != encrypted(sealed) {
		t.Fatalf("got %s", items)
	}
	for _, tt := range []struct {
		at   *Upstream
		want string
	}{{a, "secret.of.a"}, {b, ""}} {
		n.take()
		req := request()
		req.Items = slices.Clone(items)
		_, _, _ = collect(t.Context(), group(t, Options{Primaries: []Target{{Upstream: tt.at}}}), req)
		got := n.reqs[0].Items
		if encrypted(got[0]) != tt.want || encrypted(got[1]) != encrypted(sealed) {
			t.Errorf("%s got %s", tt.at.opts.Name, got)
		}
		if diff := cmp.Diff(string(items[0].Raw()), string(req.Items[0].Raw())); diff != "" {
			t.Errorf("the request was changed: %s", diff)
		}
	}
	// If the client sends its items, the turn goes to the upstream that they come
	// from.
	n.take()
	req := request()
	req.Items = items
	_, _, _ = collect(t.Context(), group(t, Options{Primaries: []Target{{Upstream: b, Weight: 1000}, {Upstream: a}}}),
		req)
	if got := n.take(); got[0] != "a" {
		t.Errorf("called %v", got)
	}
}

func item(text string) berth.Item {
	var it berth.Item
	if err := it.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return it
}
