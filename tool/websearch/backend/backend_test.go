package backend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool/websearch/backend"
)

// served returns a backend whose service is a handler.
func served(t *testing.T, name, key string, handle http.HandlerFunc) backend.Backend {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	b, err := backend.New(backend.Options{Name: name, URL: s.URL, Key: key, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The services receive the query in their own form, and their answers are read.
func TestServices(t *testing.T) {
	for name, tc := range map[string]struct {
		request string // method, path with query, and body
		header  string // with the key
		answer  string
	}{
		backend.SearXNG: {"GET /search?format=json&q=high+water+%28site%3Atides.example+OR+site%3Asea.example%29 ",
			"Authorization: Bearer key-1",
			`{"query":"high water","number_of_results":0,"results":[{"url":"https://tides.example/1","title":"Tides","content":"At <noon> & later.","publishedDate":"2025-12-05T00:00:00","engines":["bing"],"score":1.5}],"suggestions":[]}`},
		backend.Brave: {"GET /?count=3&country=FR&q=high+water+%28site%3Atides.example+OR+site%3Asea.example%29&result_filter=web&text_decorations=false ",
			"X-Subscription-Token: key-1",
			`{"type":"search","web":{"type":"search","results":[{"title":"Tides","url":"https://tides.example/1","description":"At &lt;noon&gt; &amp; later.","page_age":"2025-12-05T00:00:00","meta_url":{}}]}}`},
		backend.Tavily: {`POST / {"query":"high water","max_results":3,"include_domains":["tides.example","sea.example"]}`,
			"Authorization: Bearer key-1",
			`{"query":"high water","answer":null,"images":[],"results":[{"title":"Tides","url":"https://tides.example/1","content":"At <noon> & later.","score":0.9,"raw_content":null,"published_date":"2025-12-05T00:00:00"}],"response_time":1.2}`},
		backend.HTTP: {`POST / {"query":"high water","max_results":3,"allowed_domains":["tides.example","sea.example"],"user_location":{"type":"approximate","country":"fr"}}`,
			"Authorization: Bearer key-1",
			`{"results":[{"url":"https://tides.example/1","title":"Tides","text":"At <noon> & later.","published":"2025-12-05T00:00:00"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := served(t, name, "key-1", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if got := fmt.Sprintf("%s %s %s", r.Method, r.URL, body); got != tc.request {
					t.Errorf("request\n%s, want\n%s", got, tc.request)
				}
				header, value, _ := strings.Cut(tc.header, ": ")
				if r.Header.Get(header) != value {
					t.Errorf("headers %v, want %s", r.Header, tc.header)
				}
				_, _ = io.WriteString(w, tc.answer)
			})
			got, err := b.Search(t.Context(), backend.Query{Text: "high water", Limit: 3,
				Domains:  []string{"tides.example", "sea.example"},
				Location: &berth.WebSearchLocation{Type: "approximate", Country: "fr"}})
			want := []berth.WebSearchResult{{URL: "https://tides.example/1", Title: "Tides", Text: "At <noon> & later.",
				Published: "2025-12-05T00:00:00"}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v, results (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A service that fails, lies or floods is an error without its key, its address or its words.
func TestServiceFails(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed to %s", r.URL)
	}))
	t.Cleanup(inside.Close)
	for want, handle := range map[string]http.HandlerFunc{
		"The search service answered 401 (Unauthorized).": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "key key-1 is wrong", http.StatusUnauthorized)
		},
		"The search service answered 307 (Temporary Redirect).": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
		},
		"The search service did not answer with the JSON that was expected.": func(w http.ResponseWriter,
			_ *http.Request) {
			fmt.Fprint(w, "<html>")
		},
		"The search service sent more than 8388608 bytes.": func(w http.ResponseWriter, _ *http.Request) {
			for range 20 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1<<20))
			}
		},
		"The search service sent too many JSON values.": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"results":[{}`+strings.Repeat(",{}", 1_000_000)+`]}`)
		},
		"The search service did not answer in time.": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"The search service could not be reached.": func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		},
	} {
		_, err := served(t, backend.Tavily, "key-1", handle).Search(t.Context(), backend.Query{Text: "x", Limit: 3})
		if f, ok := err.(backend.Failure); !ok || string(f) != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := served(t, backend.Brave, "key-1", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := b.Search(ctx, backend.Query{Text: "x", Limit: 3}); err != context.Canceled {
		t.Errorf("cancelled: got %v", err)
	}
}

// Results that cannot be opened are dropped, and the others bounded.
func TestResultsAreChecked(t *testing.T) {
	b := served(t, backend.HTTP, "", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a key was sent without one")
		}
		list := []map[string]string{{"url": "javascript:alert(1)"}, {"url": "/relative"}, {"url": "file:///etc/passwd"},
			{"url": "https://x.example/" + strings.Repeat("x", 3000)},
			{"url": "https://a.example/", "title": "two\nlines " + strings.Repeat("é", 400), "text": strings.Repeat("x",
				1<<20)}, {"url": "https://b.example/"}, {"url": "https://c.example/"}}
		_ = json.NewEncoder(w).Encode(map[string]any{"results": list})
	})
	got, err := b.Search(t.Context(), backend.Query{Text: "x", Limit: 2})
	if err != nil || len(got) != 2 || got[0].URL != "https://a.example/" || len(got[0].Title) > 300 ||
		strings.Contains(got[0].Title, "\n") || len(got[0].Text) != 16<<10 || got[1].URL != "https://b.example/" {
		t.Errorf("got %d results %.400v, %v", len(got), got, err)
	}
}

// A malformed result costs no other one.
func TestMalformedResults(t *testing.T) {
	for name, answer := range map[string]string{
		backend.SearXNG: `{"results":[%s]}`, backend.Tavily: `{"results":[%s]}`, backend.HTTP: `{"results":[%s]}`,
		backend.Brave: `{"web":{"results":[%s]}}`,
	} {
		all := ""
		b := served(t, name, "key-1", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, answer, all) })
		all = `{"url":5},"text",null,[{}],{"url":"https://a.example/","title":"A"},{"url":"https://b.example/","title":["B"]}`
		got, err := b.Search(t.Context(), backend.Query{Text: "x", Limit: 3})
		if err != nil || len(got) != 1 || got[0].Title != "A" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		all = `{"url":5},"text"`
		if got, err = b.Search(t.Context(), backend.Query{Text: "x", Limit: 3}); err == nil ||
			!strings.HasPrefix(err.Error(), "None of the 2 results ") {
			t.Errorf("%s, no result is usable: got %v, %v", name, got, err)
		}
	}
}

func TestNew(t *testing.T) {
	for want, o := range map[string]backend.Options{
		`backend: "bing" is not one of brave, http, searxng, tavily`: {Name: "bing"},
		"url is required for searxng":                                {Name: backend.SearXNG},
		"url is required for http":                                   {Name: backend.HTTP, Key: "k"},
		"api_key or api_key_env is required for brave":               {Name: backend.Brave},
		"url must be an http or https address, such as http://localhost:8888": {Name: backend.SearXNG,
			URL: "ftp://user:secret@host"},
	} {
		if _, err := backend.New(o); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := backend.New(backend.Options{Name: backend.Tavily, Key: "k"}); err != nil {
		t.Error(err)
	}
}
