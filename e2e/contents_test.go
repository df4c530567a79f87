package e2e

import (
	"io"
	"log"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/model/modeltest"
)

// TestContents compares the description of containers that models get with the containers: of the
// template base, and of an image without Python and bash.
func TestContents(t *testing.T) {
	double, env := newUpstream(t)
	s := newServerWith(t, "", env...)
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/tiny:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary(t), "image", "pull", ref.Name(), "--insecure", "--state",
		s.state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tc := range []struct {
		template, tool string
		has, lacks     []string
	}{
		{"base", "shell", []string{"its own bash", "sudo works", "Python (with pandas", "Node.js", "git", "ripgrep"},
			[]string{"LibreOffice"}},
		{"base", "code_interpreter", []string{"Runs Python code", "python3", "matplotlib", "openpyxl"},
			[]string{"no Jupyter"}},
		{"tiny-1", "shell", []string{"shell (sh)", "what is installed. Look"}, []string{"Python", "sudo", "bash"}},
		{"tiny-1", "code_interpreter", []string{"no Jupyter kernel"}, []string{"Python", "matplotlib"}},
	} {
		c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "contents"},
			option.WithJSONSet("berth", map[string]any{"template": tc.template}))
		if err != nil {
			t.Fatal(err)
		}
		entry := map[string]any{"type": "shell",
			"environment": map[string]string{"type": "container_reference", "container_id": c.ID}}
		if tc.tool == "code_interpreter" {
			entry = map[string]any{"type": tc.tool, "container": c.ID}
		}
		before := len(double.Requests())
		if _, err := s.client().Responses.New(t.Context(), responses.ResponseNewParams{Model: "reciter",
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("x")}},
			option.WithJSONSet("tools", []any{entry})); err != nil {
			t.Fatal(err)
		}
		shown := description(double.Requests()[before], tc.tool)
		for _, want := range tc.has {
			if !strings.Contains(shown, want) {
				t.Errorf("%s in %s: no %q in\n%s", tc.tool, tc.template, want, shown)
			}
		}
		for _, no := range tc.lacks {
			if strings.Contains(shown, no) {
				t.Errorf("%s in %s: %q in\n%s", tc.tool, tc.template, no, shown)
			}
		}
	}
}

// description returns the first part of a function's description, without advice.
func description(r *modeltest.Request, function string) string {
	for _, f := range r.Tools {
		if f.Name == function {
			return f.Description
		}
	}
	return ""
}
