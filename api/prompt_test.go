package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

const greeting = `{"name":"greeting","template":{"model":"vendor/fed","instructions":"Speak {{language}}.","temperature":0.5,` +
	`"input":[{"role":"user","content":"Look at {{ picture }} and greet {{name}}."}]}}`

func TestPrompts(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	made := h.call(200, "POST", "/v1/prompts", greeting)
	path := "/v1/prompts/" + made.id()
	if made["version"] != "1" || fmt.Sprint(made["variables"]) != "[language name picture]" ||
		made["object"] != "prompt" {
		t.Errorf("got %v", made)
	}
	go func() {
		h.fed.words <- "Bonjour"
		h.fed.words <- ""
	}()
	answer := h.call(200, "POST", "/v1/responses",
		`{"input":"now","temperature":1,"prompt":{"id":"`+made.id()+`","variables":{`+
			`"language":"French","name":{"type":"input_text","text":"{{language}}"},"picture":{"type":"input_image","image_url":"data:image/png;base64,AA=="}}}}`)
	asked := h.fed.asked.Load()
	if asked.Instructions != "Speak French." || *asked.Temperature != 1 || len(asked.Items) != 2 {
		t.Errorf("the model got %+v", asked)
	}
	content := string(asked.Items[0].Raw())
	for _, want := range []string{`"Look at "`, `data:image/png`, `" and greet {{language}}."`} {
		if !strings.Contains(content, want) {
			t.Errorf("the first item is %s, want %s in it", content, want)
		}
	}
	if answer.at("prompt", "version") != "1" || answer["model"] != "vendor/fed" || answer.at("instructions", 0,
		"role") != "developer" || answer.at("instructions", 1, "role") != "user" {
		t.Errorf("the response shows prompt %v, instructions %v", answer["prompt"], answer["instructions"])
	}
	if items := h.call(200, "GET", "/v1/responses/"+answer.id()+"/input_items", nil); len(items["data"].([]any)) != 1 {
		t.Errorf("the prompt's messages are among the input items: %v", items)
	}

	second := h.call(200, "POST", path, `{"template":{"model":"scripted","input":"hello"},"metadata":{"a":"b"}}`)
	if second["version"] != "2" || second["name"] != "greeting" || fmt.Sprint(second["variables"]) != "[]" {
		t.Errorf("a new template: got %v", second)
	}
	if renamed := h.call(200, "POST", path, `{"name":"other"}`); renamed["version"] != "2" ||
		renamed["name"] != "other" {
		t.Errorf("a new name: got %v", renamed)
	}
	if old := h.call(200, "GET", path+"?version=1", nil); old["version"] != "1" ||
		old.at("template", "temperature") != 0.5 {
		t.Errorf("the first version: got %v", old)
	}
	for version, want := range map[string]string{"null": "2", `"2"`: "2"} {
		answer := h.call(200, "POST", "/v1/responses", `{"prompt":{"id":"`+made.id()+`","version":`+version+`}}`)
		if answer.at("prompt", "version") != want || answer["status"] != "completed" {
			t.Errorf("version %s: got %v", version, answer)
		}
	}
	versions := h.call(200, "GET", path+"/versions?order=asc", nil)
	if versions.at("data", 0, "version") != "1" || versions.at("data", 1, "version") != "2" ||
		versions.at("data", 2) != nil {
		t.Errorf("versions: got %v", versions)
	}
	if list := h.call(200, "GET", "/v1/prompts", nil); list.at("data", 0, "id") != made.id() ||
		list.at("data", 1) != nil {
		t.Errorf("prompts: got %v", list)
	}
	h.call(200, "DELETE", path, nil)
	for _, gone := range []string{path, path + "?version=1", path + "/versions"} {
		h.call(404, "GET", gone, nil)
	}
	if again := h.call(200, "GET", "/v1/responses/"+answer.id(), nil); again.at("instructions", 0,
		"role") != "developer" {
		t.Errorf("a response whose prompt is gone: %v", again)
	}
}

// Concurrent changes each create a version, and all are stored.
func TestPromptVersionsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	path := "/v1/prompts/" + h.call(200, "POST", "/v1/prompts", greeting).id()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			h.call(200, "POST", path, fmt.Sprintf(`{"template":{"instructions":"%d"}}`, i))
		})
	}
	all.Wait()
	seen := map[any]bool{}
	for v := 2; v <= 9; v++ {
		seen[h.call(200, "GET", fmt.Sprintf("%s?version=%d", path, v), nil).at("template", "instructions")] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d of 8 changes are stored: %v", len(seen), seen)
	}
}

func TestPromptErrors(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/prompts", greeting).id()
	use := func(rest string) string { return `{"input":"x","prompt":{"id":"` + id + `"` + rest + `}}` }
	for _, c := range []struct {
		path, body    string
		status        int
		param, within string
	}{
		{"/v1/prompts", `{"name":"n"}`, 400, "template", ""},
		{"/v1/prompts", `{"name":"n","template":{"stream":true}}`, 400, "template.stream", "Unknown parameter"},
		{"/v1/prompts", `{"name":"n","template":{"tools":[{"type":"function"}]}}`, 400, "template.tools[0].name", ""},
		{"/v1/responses", `{"input":"x","prompt":{"id":"pmpt_none"}}`, 404, "", "'pmpt_none' not found"},
		{"/v1/responses", use(`,"version":"7"`), 404, "", "no version '7'"},
		{"/v1/responses", use(``), 400, "prompt.variables", "Missing prompt variable: 'language'"},
		{"/v1/responses", use(`,"variables":{"language":"a","name":"b","picture":"c","more":"d"}`), 400,
			"prompt.variables", "Unknown prompt variable: 'more'"},
		{"/v1/responses",
			use(`,"variables":{"language":{"type":"input_image","image_url":"https://x"},"name":"b","picture":"c"}`),
			400, "prompt.variables.language", "an image or a file"},
		{"/v1/responses", use(`,"variables":{"language":7}`), 400, "prompt.variables.language", ""},
		{"/v1/responses", `{"input":"x"}`, 400, "model", ""},
	} {
		e := h.call(c.status, "POST", c.path, c.body)
		param, _ := e.at("error", "param").(string)
		if message, _ := e.at("error", "message").(string); param != c.param || !strings.Contains(message, c.within) {
			t.Errorf("%s %s: got %v, want %s about %s", c.path, c.body, e, c.within, c.param)
		}
	}
	h.key("sk-theirs", "proj_theirs")
	h.call(404, "GET", "/v1/prompts/"+id, nil)
	h.call(404, "POST", "/v1/prompts/"+id, `{"name":"mine"}`)
	h.call(404, "DELETE", "/v1/prompts/"+id, nil)
	h.call(404, "POST", "/v1/responses", use(``))
}

func TestPromptOverASocket(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/prompts", `{"name":"n","template":{"model":"scripted","input":"hello"}}`).id()
	l := h.connect()
	l.send(`{"type":"response.create","prompt":{"id":"` + id + `"}}`)
	done, _ := l.until("response.completed")
	if done.at("response", "prompt", "version") != "1" || done.at("response", "model") != "scripted" {
		t.Errorf("got %v", done)
	}
	l.send(`{"type":"response.create","prompt":{"id":"pmpt_none"}}`)
	if failed, _ := l.until("error"); failed.at("error", "code") != "prompt_not_found" {
		t.Errorf("an unknown prompt: got %v", failed)
	}
}
