package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
)

// A project can use an allowed template by any of its names or its digest, and the default one. Any
// other is answered as not found.
func TestTemplatesAllowed(t *testing.T) {
	dir := t.TempDir()
	images, err := image.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	digest := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	for name, d := range map[string]string{"base": "0", "py-3.12": "1", "snake": "1", "gpu": "2"} {
		giveTemplate(t, dir, name, digest(d))
	}
	allowed := map[berth.ProjectID][]string{"proj_some": {"py-*"}, "proj_none": {}, "proj_digest": {digest("2")}, "proj_star": {"*"}}
	ts := newTemplates(images, &Config{Template: "base"}, func(_ context.Context, p berth.ProjectID) (berth.Limits, error) {
		return berth.Limits{Templates: allowed[p]}, nil
	})
	defer ts.Close()
	refs := map[string][]string{"0": {"base", digest("0")}, "1": {"py-3.12", "snake", digest("1")}, "2": {"gpu", digest("2")}}
	for p, want := range map[berth.ProjectID]string{"proj_any": "012", "proj_star": "012", "proj_some": "01", "proj_none": "0", "proj_digest": "02"} {
		for d, names := range refs {
			for _, ref := range names {
				err := ts.mayName(t.Context(), p, ref)
				if may := strings.Contains(want, d); (err == nil) != may || err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
					t.Errorf("%s names %s: got %v, want allowed: %v", p, ref, err, may)
				}
				if got := ts.has(t.Context(), p, ref); got != (err == nil) {
					t.Errorf("%s has %s: got %v", p, ref, got)
				}
				if _, got := ts.Template(t.Context(), p, ref); (got == nil) != (err == nil) {
					t.Errorf("%s asks for %s: got %v", p, ref, got)
				}
			}
		}
		list, err := ts.Templates(t.Context(), p)
		if err != nil || len(list) != len(want) {
			t.Errorf("%s: got %v, %v, want %s", p, list, err, want)
		}
	}
	for p, want := range map[berth.ProjectID]string{
		"proj_any":    "Template 'nope' not found. Available templates: base, gpu, py-3.12, snake.",
		"proj_some":   "Template 'nope' not found. Available templates: base, py-3.12, snake.",
		"proj_none":   "Template 'nope' not found. Available templates: base.",
		"proj_digest": "Template 'nope' not found. Available templates: base, gpu.",
	} {
		_, shown := ts.Template(t.Context(), p, "nope")
		for _, err := range []error{ts.mayName(t.Context(), p, "nope"), shown} {
			if e, ok := errors.AsType[*berth.Error](err); !ok || e.Message != want {
				t.Errorf("%s: got %v, want %q", p, err, want)
			}
		}
	}
	missing, refused := ts.mayName(t.Context(), "proj_some", "nothing"), ts.mayName(t.Context(), "proj_some", "gpu")
	if missing == nil || refused == nil || strings.ReplaceAll(missing.Error(), "nothing", "gpu") != refused.Error() {
		t.Errorf("missing and refused templates differ: %v, %v", missing, refused)
	}
}

func TestTemplatesConfig(t *testing.T) {
	c, err := readConfig(t, "limits:\n  default: {templates: [py-*]}\n  proj_a: {templates: []}\n  proj_b: {containers: 1}\n")
	if err != nil {
		t.Fatal(err)
	}
	limits := c.limits()
	if got := limits["proj_a"].Or(limits[""]).Templates; got == nil || len(got) != 0 {
		t.Errorf("proj_a: got %v, want an empty list", got)
	}
	if got := limits["proj_b"].Or(limits[""]).Templates; !slices.Equal(got, []string{"py-*"}) {
		t.Errorf("proj_b: got %v", got)
	}
	for _, text := range []string{"{templates: ['[']}", "{templates: ['']}", "{templates: none}"} {
		if _, err := readConfig(t, "limits: {default: "+text+"}\n"); err == nil {
			t.Errorf("%s: got no error", text)
		}
	}
}
