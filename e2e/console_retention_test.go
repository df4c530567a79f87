package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
)

// TestConsoleRetention shortens the ages of a project, and holds a file, which then cannot be deleted until the hold is
// released.
func TestConsoleRetention(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	file := s.storedFile("tides.txt", "noon", openai.FilePurposeUserData)
	page := s.url + "/console/retention"
	b.open(page)
	b.shows("main", "Nothing ended yet")
	save := func(age string) {
		t.Helper()
		b.onNode(chromedp.Focus(chromedp.CSS(`[name="age:responses"]`)))
		b.run(chromedp.KeyEvent(age))
		b.click(`[name="sure"]`)
		b.click("button[value=save]")
	}
	save("soon")
	b.shows("h1", "Error 400")
	b.open(page)
	save("36h")
	b.until(`document.querySelector('[name="age:responses"]')?.value === "36h"`)
	b.shows("table.list", "36h")

	b.onNode(chromedp.Focus(chromedp.CSS("#of")))
	b.run(chromedp.KeyEvent(file))
	b.onNode(chromedp.Focus(chromedp.CSS("#reason")))
	b.run(chromedp.KeyEvent(`Case <img src=x onerror="window.pwned=1">`), chromedp.KeyEvent("\r"))
	b.shows("table.list .main", "Case <img")
	checkHarmless(b, "retention", "main img, main script")
	b.open(s.url + "/console/files/" + file)
	b.click("details:has(button[value=delete]) summary")
	b.click("button[value=delete]")
	b.shows("h1", "Error 409")
	b.shows("main", "hold_")
	b.open(page)
	b.click("td details summary")
	b.click("button[value=release]")
	b.shows(".empty", "No hold")
	b.open(s.url + "/console/files/" + file)
	b.click("details:has(button[value=delete]) summary")
	b.click("button[value=delete]")
	b.shows("h1", "Files")
}
