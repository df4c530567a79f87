package e2e

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A browser is a window of a headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string // exceptions of scripts, and what a policy refused
}

// newBrowser starts Chromium with a window of a width, or skips the test.
func newBrowser(t *testing.T, width int) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: pages are not tested")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, shut := chromedp.NewContext(ctx)
	t.Cleanup(shut)
	b := &browser{t: t, ctx: ctx}
	b.run(chromedp.EmulateViewport(int64(width), 800))
	go b.listen(chromedp.Console(ctx))
	return b
}

// listen notes exceptions and what a policy refused.
func (b *browser) listen(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err == nil && (m.IsException() || m.Source == "security" || strings.Contains(m.Text,
			"Content Security Policy")) {
			b.mu.Lock()
			b.complaints = append(b.complaints, m.Text)
			b.mu.Unlock()
		}
	}
}

// run runs actions one after the other.
func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page shows:\n%s", err, b.text())
	}
}

// text returns the text of the page.
func (b *browser) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// open opens a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url))
}

// click clicks on the first element that a selector finds.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.onNode(chromedp.Click(chromedp.CSS(selector)))
}

// onNode runs an action on a node. It runs it anew if the page has replaced the node, or has moved it out of the
// layout, after the query had found it: the browser then refuses before it dispatches an event.
func (b *browser) onNode(action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	const gone = -32000 // the code with which the browser refuses an id of a node, or one without a box
	for {
		err := chromedp.Do(b.ctx, action)
		var refusal *cdproto.Error
		switch {
		case err == nil:
			return
		case errors.Is(err, chromedp.ErrInvalidDimensions), errors.As(err, &refusal) && refusal.Code == gone:
			b.t.Logf("the page changed under an action: %v", err)
		default:
			b.t.Fatalf("%v; the page shows:\n%s", err, b.text())
		}
	}
}

// write types into the first element that a selector finds, and presses Enter.
func (b *browser) write(selector, text string) {
	b.t.Helper()
	b.onNode(chromedp.Focus(chromedp.CSS(selector)))
	b.run(chromedp.KeyEvent(text + kb.Enter))
}

// choose chooses a value of a select.
func (b *browser) choose(selector, value string) {
	b.t.Helper()
	if !evaluate[bool](b, fmt.Sprintf(`((e, v) => { e.value = v; return e.value === v; })(document.querySelector(%q), %q)`, selector,
		value)) {
		b.t.Fatalf("%s has no value %s", selector, value)
	}
}

// evaluate returns the value of a script's expression.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v; the page shows:\n%s", expression, err, b.text())
	}
	return v
}

// until waits until a script's expression is true. A page may be left while it waits. It does not
// use chromedp.Poll, which needs a function that the policy of pages forbids.
func (b *browser) until(expression string) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression)); err == nil && ok {
			return
		}
	}
	b.t.Fatalf("waited in vain until %s; the page shows:\n%s", expression, b.text())
}

// shows waits until the text of an element that a selector finds contains words.
func (b *browser) shows(selector, words string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))`, selector, words))
}

// checkQuiet fails the test if a script threw an exception or a policy refused something.
func (b *browser) checkQuiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("the browser complained:\n%s", strings.Join(b.complaints, "\n"))
	}
}
