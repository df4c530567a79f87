package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// A noun is something that is stored: what its id is needed for.
type noun struct {
	ID string `json:"id"`
}

// storedFile stores a file and returns its id.
func (s *server) storedFile(name, content string, purpose openai.FilePurpose) string {
	s.t.Helper()
	file, err := s.client().Files.New(s.t.Context(), openai.FileNewParams{Purpose: purpose,
		File: openai.File(strings.NewReader(content), name, "text/plain")})
	if err != nil {
		s.t.Fatal(err)
	}
	return file.ID
}

// create sends a POST to the API and returns the id in the answer.
func (s *server) create(path string, body any) string {
	s.t.Helper()
	var made noun
	if err := s.client().Post(s.t.Context(), path, body, &made); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return made.ID
}

// nouns stores one of each noun, all with a name, and returns their pages.
func (s *server) nouns(name string) []consolePage {
	return s.nounsSeen(name, func(path string) string {
		_, text := s.fetch(path)
		return text
	})
}

// nounsSeen is nouns with pages that a visitor sees.
func (s *server) nounsSeen(name string, page func(path string) string) []consolePage {
	s.t.Helper()
	file := s.storedFile(strings.ReplaceAll(name, "/", "")+".md", "# Tides\n\nHigh water is at noon. "+name,
		openai.FilePurposeAssistants)
	store := s.create("vector_stores", map[string]any{"name": name, "file_ids": []string{file}})
	s.waitUntil("the file is read", func() bool {
		return strings.Contains(page("/console/vector-stores/"+store+"?q=water"), `class="hit"`)
	})
	conversation := s.create("conversations", map[string]any{"metadata": map[string]string{"topic": name},
		"items": []any{map[string]any{"type": "message", "role": "user", "content": name},
			map[string]any{"type": "message", "role": "assistant",
				"content": []any{map[string]any{"type": "output_text", "text": "# Noon\n\n" + name}}}}})
	prompt := s.create("prompts", map[string]any{"name": name, "metadata": map[string]string{"owner": name},
		"template": map[string]any{"model": "scripted", "instructions": "Answer in {{language}}. " + name}})
	s.create("prompts/"+prompt, map[string]any{"template": map[string]any{"model": "scripted",
		"instructions": "Answer in {{language}} for {{reader}}."}})
	skill := s.newSkill().ID
	s.create("skills/"+skill, map[string]any{"default_version": "1"})
	lines := s.storedFile("lines.jsonl", `{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"noon"}}`+"\n",
		openai.FilePurposeBatch)
	batch := s.create("batches", map[string]any{"input_file_id": lines, "endpoint": "/v1/responses",
		"completion_window": "24h", "metadata": map[string]string{"owner": name}})
	bad := s.create("batches", map[string]any{"input_file_id": s.storedFile("bad.jsonl", name+"\n", openai.FilePurposeBatch),
		"endpoint": "/v1/responses", "completion_window": "24h"})
	for _, of := range []string{batch, bad} {
		s.waitUntil("the batch has ended", func() bool {
			return !strings.Contains(page("/console/batches/"+of), "data-refresh")
		})
	}
	return []consolePage{{"conversations", "conversations", ""}, {"conversation", "conversations/" + conversation, ""},
		{"prompts", "prompts", ""}, {"prompt", "prompts/" + prompt, ""},
		{"prompt-version", "prompts/" + prompt + "?version=1", ""}, {"skills", "skills", ""},
		{"skill", "skills/" + skill, ""}, {"stored-files", "files", ""}, {"stored-file", "files/" + file, ""},
		{"stored-lines", "files/" + lines, ""}, {"vector-stores", "vector-stores", ""},
		{"vector-store", "vector-stores/" + store, ""}, {"search", "vector-stores/" + store + "?q=water", ""},
		{"batches", "batches", ""}, {"new-batch", "batches?file=" + lines, ""}, {"batch", "batches/" + batch, ""},
		{"failed-batch", "batches/" + bad, ""}}
}

// nounLists are the pages of nouns that any project has.
var nounLists = []string{"conversations", "prompts", "skills", "files", "vector-stores", "batches", "files?purpose=batch"}

// TestConsoleNouns creates, changes and deletes one of each noun in a browser.
func TestConsoleNouns(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	page := func(path string) { b.open(s.url + "/console/" + path) }
	choose := func(name, content string) {
		t.Helper()
		evaluate[bool](b, fmt.Sprintf(`(() => { const files = new DataTransfer(); files.items.add(new File([%q], %q)); document.querySelector("#file").files = files.files; return true; })()`,
			content, name))
	}
	remove := func() {
		t.Helper()
		b.click("details:has(button[value=delete]) summary")
		b.click("button[value=delete]")
	}

	page("vector-stores")
	b.shows(".empty", "No vector store yet")
	b.write("#name", "Harbour")
	b.shows("h1", "Harbour")
	b.until(`document.readyState === "complete"`) // the page's script takes dropped files
	evaluate[bool](b, `(() => { const files = new DataTransfer(); files.items.add(new File(["High water is at noon."], "tides.txt"));
		document.querySelector("form[data-drop]").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true})); return true; })()`)
	b.click("form[data-drop] button")
	b.shows("#files .main", "tides.txt")
	b.shows("#files .state", "Completed") // without a reload
	b.write("#q", "when is high water?")
	b.shows(".hit pre", "High water is at noon.")
	b.shows(".hit h3", "tides.txt")
	b.until(`Number(document.querySelector(".hit .number").innerText) > 0`)
	b.click(`#files button[value=remove]`)
	b.shows("main", "The store has no files yet")
	remove()
	b.shows(".empty", "No vector store yet")

	page("files")
	b.shows(".main", "tides.txt") // it has remained
	choose("lines.jsonl", `{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"noon"}}`+"\n")
	evaluate[bool](b, `(() => { document.querySelector("#upload-purpose").value = "batch"; return true; })()`)
	b.click("form[data-drop] button")
	b.shows("h1", "lines.jsonl")
	b.shows("pre", `"custom_id"`)
	b.click(`a[href*="batches?file="]`)
	b.shows("form p", "lines.jsonl")
	b.click("form[data-drop] button")
	b.shows("#batch .state", "Completed") // without a reload
	b.shows("#batch .facts", "lines.jsonl")
	batch := evaluate[string](b, "location.href")
	b.click(`#batch dd:has([download]) a:not([download])`)
	b.shows("pre", `"custom_id":"a"`)
	b.open(batch) // a page that the browser restores from memory has no event of a load to wait for
	b.click(`#batch a[href^="/console/files/"]:not([download])`)
	b.shows("h1", "lines.jsonl")
	remove()
	b.shows("h1", "Files")

	page("prompts")
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), "Review"))
	evaluate[bool](b, `(() => { document.querySelector("#template").value = "{"; return true; })()`)
	b.click("form.ask button")
	b.shows(`[role=alert]`, "not JSON")
	if kept := evaluate[string](b, `document.querySelector("#template").value`); kept != "{" {
		t.Errorf("the form has lost the template: %q", kept)
	}
	evaluate[bool](b, `(() => { document.querySelector("#template").value = '{"model": "scripted", "instructions": "In {{language}}."}'; return true; })()`)
	b.click("form.ask button")
	b.shows("h1", "Review")
	evaluate[bool](b, `(() => { document.querySelector("#template").value = '{"model": "scripted", "instructions": "In {{tongue}}."}'; return true; })()`)
	b.click("button[value=save]")
	b.shows(".timeline", "Version 2")
	b.shows("pre", `"tongue": "…"`)
	b.run(chromedp.SendKeys(chromedp.CSS(`textarea[name="var:tongue"]`), "Latin"), chromedp.SendKeys(chromedp.CSS("#input"), "noon"))
	b.click("button[value=run]")
	b.until(`location.pathname.startsWith("/console/responses/")`)
	b.shows(".assistant", "noon")
	page("prompts")
	b.click("table .main a")
	b.shows("h1", "Review")
	remove()
	b.shows(".empty", "No prompt yet")

	page("skills")
	choose("SKILL.md", skillText)
	b.click("form[data-drop] button")
	b.shows("h1", "tides")
	b.shows(".text", "Run scripts/tide.sh HOUR.")
	b.shows(".plainlist", "SKILL.md")
	choose("SKILL.md", strings.ReplaceAll(skillText, "HOUR", "DAY"))
	b.click("form[data-drop] button")
	b.shows(".text", "Run scripts/tide.sh DAY.")
	b.click("button[value=default]")
	b.shows(".text", "Run scripts/tide.sh HOUR.")
	remove()
	b.shows(".empty", "No skill yet")

	page("storage")
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), "charts"), chromedp.SendKeys(chromedp.CSS("#gigabytes"), "1"))
	b.click("button[value=create]")
	b.shows("td", "charts")
	b.shows("td", "of 1.0 GB")
	b.click("td details summary")
	b.click("button[value=delete]")
	b.shows(".empty", "No volume yet")

	s.create("conversations", map[string]any{})
	page("conversations")
	b.click("table .main a")
	b.shows("main", "It has no items yet")
	b.onNode(chromedp.Focus(chromedp.CSS("#text")))
	b.run(chromedp.KeyEvent("Is it noon?"))
	b.click("button[value=continue]")
	b.until(`location.pathname.startsWith("/console/responses/")`)
	b.shows(".assistant", "Is it noon?")
	page("conversations")
	b.click("table .main a")
	b.shows(".item.user", "Is it noon?")
	b.shows("h1", "Is it noon?")
	remove()
	b.shows(".empty", "No conversation yet")
	b.checkQuiet()
}

// TestConsoleNounAttacks opens the pages of nouns whose names and contents are HTML, sends their forms without a token and from
// another site, and reads them with the key of another project.
func TestConsoleNounAttacks(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	pages := s.nouns(attack[:250])
	for _, page := range pages {
		b.open(s.url + "/console/" + page.path)
		checkHarmless(b, page.path, "main script, main img, main iframe, main style, main svg:not(.icon, .meter svg), #item-x")
	}
	raw := s.storedFile("page.html", "<script>parent.pwned=1;fetch('/console/sign-out',{method:'POST'})</script>", openai.FilePurposeUserData)
	b.open(s.url + "/console/files/" + raw)
	b.until(`document.querySelector(".preview iframe") !== null`)
	checkHarmless(b, "an HTML file", "main script, main img")
	resp, _ := s.fetch("/console/files/" + raw + "/raw")
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "sandbox allow-scripts") ||
		!strings.Contains(csp, "default-src 'none'") {
		t.Errorf("the content of a file has the policy %q", csp)
	}
	resp, _ = s.fetch("/console/files/" + raw + "/download")
	if h := resp.Header; h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		t.Errorf("a download has the headers %v", h)
	}
	const hostile = `%22%3E%3Cimg%20src=x%20onerror=window.pwned=1%3E`
	for _, path := range []string{"files?purpose=", "prompts?after=", "skills?after=", "batches?file=", pages[11].path + "?q=", pages[3].path + "?version=",
		pages[6].path + "?version="} {
		b.open(s.url + "/console/" + path + hostile)
		checkHarmless(b, path, "main img, main script")
	}

	forms := []string{"conversations/conv_x", "prompts", "prompts/pmpt_x", "skills", "skills/skill_x", "files", "files/" + raw, "vector-stores",
		"vector-stores/vs_x", "batches", "batches/batch_x",
		"storage", "templates/base", "retention"}
	for _, path := range forms {
		for name, change := range map[string]func(*http.Request){
			"without a token": func(*http.Request) {},
			"of another site": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/console/"+path,
				strings.NewReader(url.Values{"do": {"delete"}, "name": {"x"}}.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			change(r)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("a form %s to %s: got %s", name, path, resp.Status)
			}
		}
	}
	if resp, _ := s.fetch("/console/files/" + raw); resp.StatusCode != http.StatusOK {
		t.Errorf("after the attacks, the file answers %s", resp.Status)
	}
	b.checkQuiet()

	mine, other := twoProjects(t, s)
	file, err := s.client(option.WithAPIKey(mine)).Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeUserData,
		File: openai.File(strings.NewReader("secret"), "secret.txt", "text/plain")})
	if err != nil {
		t.Fatal(err)
	}
	b.open(s.url + "/console/files/" + file.ID)
	b.write("#key", other)
	b.shows("h1", "Error 404")
	for _, path := range []string{"files/" + file.ID + "/raw", "files/" + file.ID + "/download", "batches?file=" + file.ID, "files", pages[1].path,
		pages[3].path, pages[6].path, pages[11].path, pages[15].path} {
		b.open(s.url + "/console/" + path)
		if text := b.text(); strings.Contains(text, "secret") {
			t.Errorf("%s shows another project: %.200s", path, text)
		}
		if path != "files" {
			b.shows("h1", "Error 404")
		}
	}
}
