// Command record runs the commands of a file in a shell, one after the other, and writes what a terminal
// shows of them as an animated SVG, with the times that they took. Blank lines separate commands.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"
)

// Sizes of the picture in pixels, of its text in characters, and the times that a viewer needs.
const (
	columns    = 100
	cellWidth  = 8.43
	lineHeight = 19
	margin     = 16
	typing     = 700 * time.Millisecond  // from a prompt to the start of its command
	longest    = 1500 * time.Millisecond // of a pause between two lines
)

// A line is a line of the terminal and when it appears.
type line struct {
	at      time.Duration
	text    string
	command bool
}

func main() {
	out := flag.String("o", "", "file to write")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: record -o FILE.svg COMMANDS.sh")
		os.Exit(2)
	}
	if err := run(context.Background(), *out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, script string) error {
	text, err := os.ReadFile(script)
	if err != nil {
		return err
	}
	var all []line
	var now time.Duration
	for _, command := range commands(string(text)) {
		for i, text := range strings.Split(command, "\n") {
			prompt := "$ "
			if i > 0 {
				prompt = "> "
			}
			all = append(all, line{at: now, text: prompt + text, command: true})
		}
		now += typing
		printed, err := record(ctx, command)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		var last, skipped time.Duration
		for _, l := range printed {
			skipped += max(0, l.at-last-longest)
			last = l.at
			l.at += now - skipped
			all = append(all, l)
		}
		now = all[len(all)-1].at + typing
	}
	return os.WriteFile(out, []byte(svg(all)), 0o644)
}

// commands returns the commands of a file.
func commands(text string) []string {
	return strings.Split(strings.TrimSpace(text), "\n\n")
}

// record runs a command and returns the lines that it printed. A command that fails is
// shown as well.
func record(ctx context.Context, command string) ([]line, error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // its output shows why it failed
		w.Close()
	}()
	var all []line
	for lines := bufio.NewScanner(r); lines.Scan(); {
		for _, text := range wrap(lines.Text()) {
			all = append(all, line{at: time.Since(start), text: text})
		}
	}
	return all, nil
}

// wrap cuts a line into pieces that fit the terminal.
func wrap(text string) (pieces []string) {
	for utf8.RuneCountInString(text) > columns {
		runes := []rune(text)
		pieces, text = append(pieces, string(runes[:columns])), string(runes[columns:])
	}
	return append(pieces, text)
}

// svg draws lines that appear one after the other. Viewers without animation see all.
func svg(all []line) string {
	var b strings.Builder
	width, height := int(columns*cellWidth)+2*margin, len(all)*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">
<title>A recorded session of the berth command line</title>
<style>
rect { fill: #16181d }
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6dae0; white-space: pre }
.c { fill: #8fd3a7; font-weight: bold }
@media (prefers-reduced-motion: no-preference) { text { animation: show 1ms both } }
@keyframes show { from { opacity: 0 } to { opacity: 1 } }
</style>
<rect width="100%%" height="100%%" rx="8"/>
`, width, height, width, height)
	for i, l := range all {
		class := ""
		if l.command {
			class = ` class="c"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d"%s style="animation-delay:%.2fs">%s</text>`+"\n", margin,
			margin+(i+1)*lineHeight-5, class, l.at.Seconds(), html.EscapeString(l.text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
