package templates

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
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
	allowed := map[berth.ProjectID][]string{"proj_some": {"py-*"}, "proj_none": {}, "proj_digest": {digest("2")},
		"proj_star": {"*"}}
	ts := New(images, &config.Config{Template: "base"}, func(_ context.Context, p berth.ProjectID) (berth.Limits,
		error) {
		return berth.Limits{Templates: allowed[p]}, nil
	})
	defer ts.Close()
	refs := map[string][]string{"0": {"base", digest("0")}, "1": {"py-3.12", "snake", digest("1")},
		"2": {"gpu", digest("2")}}
	for p, want := range map[berth.ProjectID]string{"proj_any": "012", "proj_star": "012", "proj_some": "01",
		"proj_none": "0", "proj_digest": "02"} {
		for d, names := range refs {
			for _, ref := range names {
				err := ts.MayName(t.Context(), p, ref)
				if may := strings.Contains(want, d); (err == nil) != may || err != nil &&
					berth.ErrorCode(err) != berth.CodeNotFound {
					t.Errorf("%s names %s: got %v, want allowed: %v", p, ref, err, may)
				}
				if got := ts.Has(t.Context(), p, ref); got != (err == nil) {
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
		for _, err := range []error{ts.MayName(t.Context(), p, "nope"), shown} {
			if e, ok := errors.AsType[*berth.Error](err); !ok || e.Message != want {
				t.Errorf("%s: got %v, want %q", p, err, want)
			}
		}
	}
	missing, refused := ts.MayName(t.Context(), "proj_some", "nothing"), ts.MayName(t.Context(), "proj_some", "gpu")
	if missing == nil || refused == nil || strings.ReplaceAll(missing.Error(), "nothing", "gpu") != refused.Error() {
		t.Errorf("missing and refused templates differ: %v, %v", missing, refused)
	}
}

// An image that a project pulled is not known to other projects, by none of its names and not by its
// digest, unless the operator has named it.
func TestPulledTemplates(t *testing.T) {
	dir := t.TempDir()
	images, err := image.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	digest := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	own, shared := state.PulledPrefix("proj_a")+strings.Repeat("0", 24), state.PulledPrefix("proj_a")+strings.Repeat("1", 24)
	for name, d := range map[string]string{"base": "0", own: "1", shared: "2", "public": "2"} {
		giveTemplate(t, dir, name, digest(d))
	}
	limited := []string{"base"}
	ts := New(images, &config.Config{Template: "base"}, func(_ context.Context, p berth.ProjectID) (berth.Limits,
		error) {
		if p == "proj_limited" {
			return berth.Limits{Templates: limited}, nil
		}
		return berth.Limits{}, nil
	})
	defer ts.Close()
	for _, tt := range []struct {
		project berth.ProjectID
		ref     string
		may     bool
	}{
		{"proj_a", own, true}, {"proj_a", digest("1"), true}, {"proj_a", shared, true},
		{"proj_b", own, false}, {"proj_b", digest("1"), false}, {"proj_b", shared, false}, {"proj_b", "public", true},
		{"proj_b", digest("2"), true},
		{"proj_limited", digest("1"), false}, {"proj_limited", "public", false},
	} {
		err := ts.MayName(t.Context(), tt.project, tt.ref)
		if (err == nil) != tt.may || err != nil && tt.ref != own && strings.Contains(err.Error(), own) {
			t.Errorf("%s names %s: got %v, want allowed: %v", tt.project, tt.ref, err, tt.may)
		}
		if _, shown := ts.Template(t.Context(), tt.project, tt.ref); (shown == nil) != tt.may {
			t.Errorf("%s asks for %s: got %v", tt.project, tt.ref, shown)
		}
	}
	pl := &Puller{Templates: ts, Room: func() error { return nil }}
	for ref, want := range map[string]string{"127.0.0.1:1/app:1": "no public address", "localhost:1/app": "",
		"::": "Invalid image", "file:///x": "'file:///x'", "-x": "'-x'", "app/-x": "'app/-x'", "--help": "'--help'",
		"../x":                             "'../x'",
		"169.254.169.254/latest/meta-data": ""} {
		_, _, err := pl.Pull(t.Context(), "proj_a", ref, "", "", func(string) {})
		if berth.ErrorCode(err) != berth.CodeInvalid || !strings.Contains(err.Error(), want) &&
			!strings.Contains(err.Error(), "require HTTPS") {
			t.Errorf("pull of %s: got %v, want %q", ref, err, want)
		}
	}
}
