package markdown

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"time"

	"github.com/berth-run/berth/internal/jail"
)

// Command is the first argument with which a program runs Main.
const Command = "render-markdown"

// Limits of a child.
const (
	childTime   = 30 * time.Second // from the request to the answer
	childCPU    = 10               // seconds
	maxInput    = 64 << 20         // bytes of the texts of a page
	maxOutput   = 16 << 20         // bytes of the HTML of a page
	maxChildren = 2                // at a time
)

// running has an element for each child.
var running = make(chan struct{}, maxChildren)

// renderApart renders the texts with the given indexes in a child process, and sets their
// HTML in out.
func renderApart(ctx context.Context, texts []string, indexes []int, out []template.HTML) {
	if len(indexes) == 0 {
		return
	}
	var asked []string
	for _, i := range indexes {
		out[i] = plain(texts[i])
		asked = append(asked, texts[i])
	}
	// A child that was ended has written what it rendered before.
	answers := json.NewDecoder(bytes.NewReader(runChild(ctx, asked)))
	for _, i := range indexes {
		var html *template.HTML
		if answers.Decode(&html) != nil {
			return
		}
		if html != nil {
			out[i] = *html
		}
	}
}

// runChild returns what a child writes about texts until it ends.
func runChild(ctx context.Context, texts []string) []byte {
	ctx, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	select {
	case running <- struct{}{}:
		defer func() { <-running }()
	case <-ctx.Done():
		return nil
	}
	raw, err := json.Marshal(texts)
	if err != nil {
		return nil
	}
	out := &boundedBuffer{most: maxOutput}
	cmd := jail.Command(ctx, "", childMemory, Command)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(raw), out
	_ = cmd.Run() // what it wrote counts
	return out.buf.Bytes()
}

// Main reads a list of texts in JSON from stdin, and writes to stdout for each of them its HTML
// as a string, or null if it exceeds a bound. It gives up all that it does not need first. It
// returns the exit status.
func Main() int {
	if err := jail.Enter(jail.Limits{CPU: childCPU, Memory: childMemory}); err != nil {
		fmt.Fprintln(os.Stderr, "failed to drop privileges:", err)
		return 1
	}
	var texts []string
	if err := json.NewDecoder(io.LimitReader(os.Stdin, maxInput)).Decode(&texts); err != nil {
		return 1
	}
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false) // it is data of JSON, not a part of a page
	for _, text := range texts {
		var answer *template.HTML
		if html, ok := convert(text, min(growth*len(text)+allowance, maxHTML)); ok {
			answer = &html
		}
		if err := answers.Encode(answer); err != nil {
			return 1
		}
	}
	return 0
}
