package e2e

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// A consolePage is a page of the console: the name of its picture, its path below /console/, and an
// expression that is true when it is complete ("" if it is when loaded).
type consolePage struct{ name, path, complete string }

// tour fills a server without keys with what its pages can show, and returns every page but those of the
// operator with a key.
func tour(s *server, b *browser) []consolePage {
	s.t.Helper()
	first := s.inBackground("Count the boats in the harbour\n" + fence("seq 3; echo 'no such boat' >&2; sleep 0.2",
		"printf 'name,length\\nAda,12\\n' > boats.csv; exit 3"))
	s.waitUntil("the response has ended", func() bool {
		out, _, err := s.berth("response", "ls", "--json")
		return err == nil && strings.Contains(out, `"completed"`)
	})
	last := s.goOn(first.ID,
		"# Report\n\n| name | length |\n|---|---|\n| Ada | 12 |\n\nSee `boats.csv` and [the list](https://example.com).")
	s.goOn(first.ID, "And the ferries?")
	asks := s.asking(fence("touch asked"))
	s.trace(`{"object":"trace","id":"trace_1","workflow_name":"Harbour master","group_id":"morning","metadata":null},` +
		tracedSpan("span_1", "", 0, 2400, `{"type":"agent","name":"Harbour master"}`) + "," +
		tracedSpan("span_2", "span_1", 10, 1100,
			`{"type":"response","response_id":"`+last+`","usage":{"input_tokens":812,"output_tokens":96}}`) + "," +
		tracedSpan("span_3", "span_1", 1120, 1500, `{"type":"function","name":"tide"}`) + "," +
		tracedSpan("span_4", "span_1", 1510, 2390,
			`{"type":"generation","model":"scripted","usage":{"input_tokens":990,"output_tokens":41}}`))
	if out, errs, err := s.berth("webhook", "create", "--state", s.state, "--name", "harbour",
		"http://127.0.0.1:9/"); err != nil {
		s.t.Fatalf("%v: %s%s", err, out, errs)
	}
	b.open(s.url + "/console/webhooks")
	webhook := evaluate[string](b, `document.querySelector('main a[href^="/console/webhooks/"]').pathname`)

	c, err := s.client().Containers.New(s.t.Context(), openai.ContainerNewParams{Name: "harbour"},
		option.WithJSONSet("network_policy", map[string]any{"type": "allowlist",
			"allowed_domains": []string{"tides.example"}}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.in(c.ID, `mkdir -p charts/2026 && printf 'name,length,draught\nAda,12,1.8\nGrace,9,1.2\n' > boats.csv && printf '# Harbour\n\n- **Ada** lies at pier 2.\n' > README.md &&
		printf '<h1>Tides</h1><p>High water at 06:12.</p>' > tides.html && echo calm > charts/2026/log.txt; curl -s --max-time 20 http://weather.example/ || true`)
	container := "containers/" + c.ID
	b.open(s.url + "/console/" + container + "/terminals")
	b.click(".actions button")
	b.screens(".pane", "$")
	b.types("ls -l --time-style=+")
	b.screens(".pane", "tides.html")
	b.open(s.url + "/console/" + container)
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), "before the storm"))
	b.click(`button[value="snapshot"]`)
	b.shows(".timeline", "before the storm")

	b.open(s.url + "/console/storage")
	template := strings.TrimPrefix(evaluate[string](b, `document.querySelector('main a[href^="/console/templates/"]').pathname`),
		"/console/")
	return append([]consolePage{
		{"home", "", ""}, {"containers", "containers", ""}, {"container", container, ""}, {"files", container + "/files", ""},
		{"file-table", container + "/files?path=/mnt/data/boats.csv", ""},
		{"file-html", container + "/files?path=/mnt/data/tides.html", ""}, {"terminals", container + "/terminals", ""},
		{"resources", container + "/resources",
			`document.querySelector("#charts polyline").getAttribute("points").split(" ").length > 5`},
		{"network", container + "/network", ""}, {"refused", "refused", ""}, {"timeline", container + "/snapshots", ""},
		{"ports", container + "/ports", ""}, {"snapshots", "snapshots", ""}, {"retention", "retention", ""},
		{"responses", "responses", ""}, {"response", "responses/" + last, ""},
		{"response-first", "responses/" + first.ID, ""}, {"approval", "responses/" + asks.ID, ""},
		{"branches", "responses/" + last + "/branches", ""}, {"new", "new", ""}, {"connect", "connect", ""},
		{"drawer", "responses?open=" + last, ""}, {"usage", "usage", ""}, {"usage-tools", "usage?by=tool", ""},
		{"template", template, ""}, {"choose-runs", "compare", ""}, {"compare", "compare?a=" + first.ID + "&b=" + last, ""}, {"traces", "traces", ""}, {"trace", "traces/trace_1", ""},
		{"end-users", "end-users", ""}, {"end-user", "end-users/" + s.endUser("Harbour"), ""},
		{"storage", "storage", ""}, {"webhooks", "webhooks", ""}, {"webhook", strings.TrimPrefix(webhook, "/console/"),
			""}, {"audit", "audit", ""},
		{"unknown", "unknown", ""},
	}, s.nouns("Harbour")...)
}

// operatorTour creates an admin key, with which the server requires keys from then on, signs in with it, and
// returns the pages of the operator.
func operatorTour(s *server, b *browser) []consolePage {
	s.t.Helper()
	s.signInAsAdmin(b)
	b.open(s.url + "/console/projects")
	b.write("#name", "Harbour")
	b.shows("h1", "Harbour")
	b.choose("#role", "runner")
	b.write("#name", "laptop")
	b.shows(".once", "not shown again")
	project := strings.TrimPrefix(evaluate[string](b, "location.pathname"), "/console/")
	return []consolePage{{"operator-home", "", ""}, {"operator-usage", "usage", ""},
		{"projects", "projects", ""}, {"project", project, ""},
		{"operator-refused", "refused", ""}, {"health", "health", ""}, {"admin-keys", "admin-keys", ""}, {"operator-audit", "audit", ""}, {"sign-in", "sign-in?add=1", ""}}
}

// createKey creates an API key on the server's machine.
func (s *server) createKey(options ...string) string {
	s.t.Helper()
	out, errs, err := s.berth(append([]string{"key", "create", "--state", s.state}, options...)...)
	if err != nil {
		s.t.Fatalf("%v: %s", err, errs)
	}
	return strings.TrimSpace(out[strings.LastIndex(out, "sk-"):])
}

// signInAsAdmin creates an admin key, waits until the server requires keys, and signs in with it. The test
// itself has a key of the default project from then on.
func (s *server) signInAsAdmin(b *browser) {
	s.t.Helper()
	key := s.createKey("--admin")
	s.key = s.createKey()
	s.signInWith(b, key)
}

// signInWith signs in with the first key of a server.
func (s *server) signInWith(b *browser, key string) {
	s.t.Helper()
	s.waitUntil("keys are required", func() bool {
		resp, err := http.Get(s.url + "/v1/models")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
	b.open(s.url + "/console/")
	b.write("#key", key)
	b.shows("h1", "Home")
}

// tracedSpan returns a span that starts and ends at milliseconds.
func tracedSpan(id, parent string, start, end int, data string) string {
	at := func(ms int) string { return fmt.Sprintf("2026-01-01T00:00:%02d.%03d+00:00", ms/1000, ms%1000) }
	above := "null"
	if parent != "" {
		above = `"` + parent + `"`
	}
	return fmt.Sprintf(
		`{"object":"trace.span","id":%q,"trace_id":"trace_1","parent_id":%s,"started_at":%q,"ended_at":%q,"span_data":%s,"error":null}`,
		id, above, at(start), at(end), data)
}
