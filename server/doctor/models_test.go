package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/server/config"
)

// berth doctor finds out whether each upstream answers, accepts its key and has its models, within a
// bounded time and without printing a key.
func TestCheckUpstreams(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
		"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("BERTH_TEST_KEY", "sk-secret-good")
	t.Setenv("BERTH_TEST_WRONG", "sk-secret-wrong")
	release := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/hangs/"):
			<-release
		case strings.HasPrefix(r.URL.Path, "/fails/"):
			http.Error(w, `{"error":{"message":"sk-secret-good is overloaded"}}`, http.StatusInternalServerError)
		case strings.HasPrefix(r.URL.Path, "/html/"):
			fmt.Fprint(w, "<html>a login page</html>")
		case strings.HasPrefix(r.URL.Path, "/elsewhere/"):
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer sk-secret-good" &&
			r.Header.Get("X-Api-Key") != "sk-secret-good" && r.Header.Get("X-Goog-Api-Key") != "sk-secret-good":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s"}}`, r.Header.Get("Authorization"))
		case strings.HasPrefix(r.URL.Path, "/gemini/"):
			fmt.Fprint(w, `{"models":[{"name":"models/gemini-9"}]}`)
		default:
			fmt.Fprint(w,
				`{"object":"list","data":[{"id":"qwen3:latest"},{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"},{"id":"e"},{"id":"f"}],"has_more":false}`)
		}
	}))
	defer up.Close()
	defer close(release)
	const only = "[{match: a, upstreams: [{name: up}]}]"
	for name, c := range map[string]struct {
		text   string // of the upstream, and models for it
		models string
		ok     bool
		detail string
		advice string
	}{
		"good": {"base_url: URL/v1, api_key_env: BERTH_TEST_KEY",
			"[{match: qwen3, upstreams: [{name: up}]}, {match: 'gpt-*', upstreams: [{name: up}]}]", true,
			"answers and lists 7 models; accepts the key of BERTH_TEST_KEY", ""},
		"wrong key": {"base_url: URL/v1, api_key_env: BERTH_TEST_WRONG", only, false,
			"refused the API key configured for it (401)", "put a valid key into BERTH_TEST_WRONG"},
		"inline key": {"base_url: URL/v1, api_key: sk-secret-wrong", only, false, "refused the API key",
			"put a valid key into api_key"},
		"no model": {"base_url: URL/v1, api_key: sk-secret-good",
			"[{match: qwen9, upstreams: [{name: up}]}, {match: x, upstreams: [{name: up, model: a}]}]", true,
			"lists 7 models", "it does not list qwen9, but qwen3:latest, a, b, c, d, 2 more; correct the name"},
		"anthropic": {"provider: anthropic, base_url: URL, api_key: sk-secret-good", only, true, "lists 7 models",
			""},
		"gemini": {"provider: gemini, base_url: URL/gemini, api_key: sk-secret-good",
			"[{match: gemini-9, upstreams: [{name: up}]}]", true, "lists 1 model", ""},
		"unreachable": {"base_url: 'http://CLOSED/v1', api_key: sk-secret-good", only, false, "could not be reached",
			"check base_url and the network"},
		"hangs": {"base_url: URL/hangs/v1", only, false, "no answer within 300ms", "check base_url and the network"},
		"fails": {"base_url: URL/fails/v1, api_key: sk-secret-good", only, false, "failed (500)", "check base_url"},
		"html": {"base_url: URL/html/v1, api_key: sk-secret-good", only, false, "Check its base_url",
			"check base_url"},
		"no list": {"base_url: URL/elsewhere, api_key: sk-secret-good", only, true, "cannot list its models: ",
			"check that base_url is right"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := configOf(t, strings.NewReplacer("URL", up.URL, "CLOSED",
				freeport.Addr(t)).Replace("upstreams: {up: {"+c.text+"}}\nmodels: "+c.models+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			wait := 10 * time.Second
			if name == "hangs" {
				wait = 300 * time.Millisecond
			}
			found := checkUpstreams(t.Context(), config, wait)
			if len(found) != 1 {
				t.Fatalf("got %+v", found)
			}
			f := found[0]
			if f.What != "upstream up" || f.OK != c.ok || !strings.Contains(f.Detail, c.detail) ||
				!strings.Contains(f.Advice, c.advice) || (f.Advice == "") != (c.advice == "") {
				t.Errorf("got %+v, want %+v", f, c)
			}
			if strings.Contains(fmt.Sprintf("%+v", f), "secret") {
				t.Errorf("a key is printed: %+v", f)
			}
		})
	}
}

// The upstreams of the environment are checked too; without any, doctor says which variables to set.
func TestCheckUpstreamsOfEnvironment(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
		"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
		t.Setenv(name, "")
	}
	c, err := configOf(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if f := checkUpstreams(t.Context(), c, time.Minute); len(f) != 1 || !f[0].OK || !strings.Contains(f[0].Advice,
		"OPENAI_BASE_URL") {
		t.Errorf("without any: got %+v", f)
	}
	addr := freeport.Addr(t)
	t.Setenv("OPENAI_BASE_URL", "http://"+addr+"/v1")
	if f := checkUpstreams(t.Context(), c, time.Minute); len(f) != 1 || f[0].OK || f[0].What != "upstream "+addr ||
		!strings.Contains(f[0].Detail, "could not be reached") {
		t.Errorf("unreachable: got %+v", f)
	}
}

// configOf reads a configuration.
func configOf(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{Path: path})
}
