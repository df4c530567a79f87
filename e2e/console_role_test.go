package e2e

import (
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"golang.org/x/net/html"
)

// A postForm is a form of a page that changes something.
type postForm struct {
	page, action string
	fields       url.Values
	buttons      []url.Values // what each button adds
}

// formsOf returns the forms of a page that are posted, and its links.
func formsOf(page, text string) (forms []postForm, links []string) {
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return nil, nil
	}
	attributes := func(n *html.Node) map[string]string {
		all := map[string]string{}
		for _, a := range n.Attr {
			all[a.Key] = a.Val
		}
		return all
	}
	var within *postForm
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		a := attributes(n)
		if within != nil && !below(n, "form") {
			within = nil
		}
		switch n.Data {
		case "a":
			links = append(links, a["href"])
		case "form":
			if a["method"] == "post" {
				forms = append(forms, postForm{page: page, action: a["action"], fields: url.Values{}})
				within = &forms[len(forms)-1]
			}
		case "input", "textarea", "select":
			if within != nil && a["name"] != "" && a["type"] != "file" && (a["type"] != "checkbox" && a["type"] != "radio" || a["value"] == "approve") {
				value := a["value"]
				if value == "" && (n.Data == "textarea" || a["type"] == "" || a["type"] == "number") {
					value = "1"
				}
				within.fields.Set(a["name"], value)
			}
		case "button":
			if within != nil && a["name"] != "" {
				within.buttons = append(within.buttons, url.Values{a["name"]: {a["value"]}})
			}
		}
	}
	return forms, links
}

// below reports whether a node is in an element of a name.
func below(n *html.Node, name string) bool {
	for above := range n.Ancestors() {
		if above.Data == name {
			return true
		}
	}
	return false
}

// A visitor has a session of the console, without a browser.
type visitor struct {
	s      *server
	client *http.Client
}

// visitorWith signs in with a key.
func (s *server) visitorWith(key string) *visitor {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	v := &visitor{s, &http.Client{Jar: jar}}
	forms, _ := formsOf("", v.page("/console/sign-in"))
	forms[0].fields.Set("key", key)
	if status, text := v.post("/console/sign-in", forms[0].fields); status != http.StatusOK {
		s.t.Fatalf("signing in: %d: %s", status, text)
	}
	return v
}

// page returns the text of a page.
func (v *visitor) page(path string) string {
	v.s.t.Helper()
	resp, err := v.client.Get(v.s.url + path)
	if err != nil {
		v.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		v.s.t.Fatal(err)
	}
	return string(text)
}

// post sends a form.
func (v *visitor) post(path string, fields url.Values) (status int, text string) {
	v.s.t.Helper()
	resp, err := v.client.PostForm(v.s.url+path, fields)
	if err != nil {
		v.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		v.s.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// crawl returns the pages that links lead to from the first, and their forms that change something.
func (v *visitor) crawl(first ...string) (pages []string, forms []postForm) {
	seen := map[string]bool{}
	for queue := first; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		if seen[path] {
			continue
		}
		seen[path] = true
		pages = append(pages, path)
		found, links := formsOf(path, v.page(path))
		for _, f := range found {
			if !slices.Contains([]string{"/console/sign-out", "/console/switch"}, f.action) {
				forms = append(forms, f)
			}
		}
		for _, link := range links {
			link, _, _ = strings.Cut(link, "#")
			if strings.HasPrefix(link, "/console/") && !strings.Contains(link, "?") && !strings.HasSuffix(link, "/bundle") &&
				!strings.HasSuffix(link, ".csv") && !strings.Contains(link, "/download") && !strings.Contains(link, "/sign-in") {
				queue = append(queue, link)
			}
		}
	}
	return pages, forms
}

// TestConsoleViewer: pages have no form that the visitor's key may not send, but say why. Each form that another key
// sees is refused to a viewer with 403, and changes nothing.
func TestConsoleViewer(t *testing.T) {
	s := newServer(t)
	s.key = s.createKey()
	viewer, approver := s.createKey("--role", "viewer"), s.createKey("--role", "approver")
	s.inBackground("Calm")
	c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	owner := s.visitorWith(s.key)
	s.nounsSeen("Harbour", owner.page)
	s.snapshotNamed(c.ID, "noon")
	if out, errs, err := s.berth("webhook", "create", "--state", s.state, "http://127.0.0.1:9/"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if err := s.client().Post(t.Context(), "traces/ingest", map[string]any{"data": []any{map[string]any{"object": "trace",
		"id": "trace_1", "workflow_name": "Harbour", "group_id": nil, "metadata": nil}}}, nil); err != nil {
		t.Fatal(err)
	}
	s.endUser("Harbour")
	asks := s.asking(fence("touch asked"))
	s.waitUntil("it asks", func() bool { return strings.Contains(owner.page("/console/"), "data-approval") })

	pages, forms := owner.crawl("/console/")
	actions := map[string]bool{}
	for _, f := range forms {
		actions[f.action] = true
	}
	if len(actions) < 25 {
		t.Errorf("only %d forms were found: %s", len(actions), slices.Sorted(maps.Keys(actions)))
	}
	before := s.objects()

	seen := s.visitorWith(viewer)
	for _, path := range pages {
		text := seen.page(path)
		found, _ := formsOf(path, text)
		for _, f := range found {
			if f.action != "/console/sign-out" {
				t.Errorf("%s shows a viewer the form of %s", path, f.action)
			}
		}
	}
	for path, hint := range map[string]string{"/console/": "Missing permission: approve.", "/console/new": "Missing permission: run.",
		"/console/prompts": "Missing permission: manage.", "/console/responses/" + asks.ID: "Missing permission: approve."} {
		if text := seen.page(path); !strings.Contains(text, hint) {
			t.Errorf("%s does not say %q", path, hint)
		}
	}
	own, _ := formsOf("", seen.page("/console/"))
	for _, f := range forms {
		for _, button := range append(f.buttons, url.Values{}) {
			fields := maps.Clone(f.fields)
			maps.Copy(fields, button)
			fields.Set("form", own[0].fields.Get("form"))
			if status, text := seen.post(f.action, fields); status != http.StatusForbidden &&
				(status != http.StatusBadRequest || len(button) > 0) {
				t.Errorf("%s %v: got %d, want 403: %.300s", f.action, button, status, text)
			}
		}
	}
	if after := s.objects(); after != before {
		t.Errorf("a viewer has changed something: before\n%s\nafter\n%s", before, after)
	}

	approves := s.visitorWith(approver)
	if text := approves.page("/console/responses/" + asks.ID); !strings.Contains(text, "data-approval") ||
		strings.Contains(text, "/continue") {
		t.Error("an approver does not see the form to approve alone")
	}
}

// objects returns the ids of all objects of the test's project.
func (s *server) objects() string {
	s.t.Helper()
	var all []string
	for _, path := range []string{"responses", "containers", "files", "snapshots", "prompts", "skills", "vector_stores", "batches",
		"volumes", "webhook_endpoints", "traces", "end_users", "organization/projects"} {
		var found struct{ Data []noun }
		if err := s.client().Get(s.t.Context(), path+"?limit=100", nil, &found); err != nil && !strings.Contains(err.Error(), "403") {
			s.t.Fatal(err)
		}
		all = append(all, path)
		for _, n := range found.Data {
			all = append(all, n.ID)
		}
	}
	return strings.Join(all, "\n")
}
