package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsolePlayground runs a task with a skill, a check, a limit and a secret, whose value appears nowhere, replays it with
// another text, and sees why the server lacks a tool.
func TestConsolePlayground(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	s.newSkill()
	b.open(s.url + "/console/new")
	b.shows("label:has(input[value=web_search]:disabled) .note", "search") // the reason
	b.shows("label:has(input[value=image_generation]:disabled) .note", "image")
	b.shows("label:has(input[value=file_search]:disabled) .note", "no vector store")
	b.click("fieldset details:has(#memory) summary")
	b.click("input[name=skill]")
	b.click("details:has(#checks) summary")
	b.run(chromedp.SendKeys(chromedp.CSS("#text"), "Read the tides\n"+fence("ls /home/oai/skills; echo $API_TOKEN")),
		chromedp.SendKeys(chromedp.CSS("#secret-name"), "API_TOKEN"),
		chromedp.SendKeys(chromedp.CSS("#secret-host"), "api.example.com"),
		chromedp.SendKeys(chromedp.CSS("#secret"), "hunter2"),
		chromedp.SendKeys(chromedp.CSS("#checks"), "true"),
		chromedp.SendKeys(chromedp.CSS("#max-turns"), "many"))
	b.click("button.primary")
	b.shows("[role=alert]", "max_turns") // the API's reason
	if kept := evaluate[string](b, `document.querySelector("#secret-host").value + document.querySelector("#secret").value`); kept != "api.example.com" {
		t.Errorf("the form has kept %q", kept)
	}
	evaluate[bool](b, `(() => { document.querySelector("#max-turns").value = "9"; document.querySelector("#secret").value = "hunter2"; return true; })()`)
	b.click("button[name=show]")
	b.shows("details[name=code]", `"max_turns": 9`)
	if strings.Contains(b.text(), "hunter2") {
		t.Error("the code has the value of the secret")
	}
	evaluate[bool](b, `(() => { document.querySelector("#secret").value = "hunter2"; return true; })()`)
	b.click("button.primary")
	b.until(`location.pathname.startsWith("/console/responses/")`)
	b.shows(".shell_call_output pre", "tides")
	b.shows("#bar .state", "Completed")
	if strings.Contains(evaluate[string](b, "document.documentElement.outerHTML"), "hunter2") {
		t.Error("the page of the run has the value of the secret")
	}
	b.click(".sums details summary")
	b.click(`a[href^="/console/new?from="]`)
	b.until(`document.querySelector("#text") !== null`)
	if got := evaluate[string](b, `document.querySelector("#hosts").value + " " + document.querySelectorAll("input[name=skill]:checked").length + document.querySelector("#text").value.slice(0, 14)`); got != "api.example.com 1Read the tides" {
		t.Errorf("the form is filled with %q", got)
	}
	b.checkQuiet()
}

// TestConsoleFilm sees the screenshots of a response as a strip that leads to its steps.
func TestConsoleFilm(t *testing.T) {
	s := newServer(t)
	const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
	input := []any{map[string]any{"role": "user", "content": "Open the harbour's page"}}
	for _, call := range []string{"call_1", "call_2"} {
		input = append(input, map[string]any{"type": "computer_call", "id": "cu_" + call, "call_id": call, "status": "completed",
			"actions": []any{map[string]any{"type": "screenshot"}}, "pending_safety_checks": []any{}},
			map[string]any{"type": "computer_call_output", "call_id": call,
				"output": map[string]any{"type": "computer_screenshot", "image_url": pixel}})
	}
	id := s.create("responses", map[string]any{"model": "scripted", "input": append(input, map[string]any{"role": "user", "content": "Well?"})})
	b := newBrowser(t, 1280)
	b.open(s.url + "/console/responses/" + id)
	b.until(`document.querySelectorAll(".film img").length === 2`)
	b.click(".film a:last-child")
	b.until(`document.querySelector(".item:target .picture") === [...document.querySelectorAll(".picture")].at(-1)`)
	b.checkQuiet()
}
