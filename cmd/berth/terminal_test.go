package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/server/config"
)

// orders are characters that would control or mislead a terminal, in text from a sandbox or another
// party.
const orders = "a\x1b]0;b\x07\x1b[2Jc\rd\u009bd\u202ee\x7f"

// Displayed text contains neither control sequences nor extra lines.
func TestNoOrdersToTerminals(t *testing.T) {
	var out bytes.Buffer
	name := orders + "\nb\tc"
	c := &berth.Container{ID: "cntr_1", Name: name}
	for what, print := range map[string]func(io.Writer) error{
		"top":       func(w io.Writer) error { return printTop(w, []topLine{{container: c}}, false, &listing{}) },
		"ps":        func(w io.Writer) error { return printContainers(w, &listing{}, []*berth.Container{c}) },
		"snapshots": func(w io.Writer) error { return printSnapshots(w, &listing{}, []*berth.Snapshot{{Name: name}}) },
	} {
		var table bytes.Buffer
		if err := print(&table); err != nil {
			t.Fatal(err)
		}
		if strings.Count(table.String(), "\n") != 2 || strings.Contains(table.String(), "\t") {
			t.Errorf("%s: %q", what, table.String())
		}
		out.Write(table.Bytes())
	}
	if line := entryText(&audit.Entry{Name: name, Host: name}); strings.Contains(line, "\n") {
		t.Errorf("audit: %q", line)
	} else {
		out.WriteString(line)
	}
	_ = differs(&out, &bundle.Replay{Divergence: &bundle.Divergence{Recorded: name, Replayed: name}})
	_ = printBoth(&out,
		&bundle.Replay{Responses: []bundle.ReplayResponse{{Recorded: []string{name}, Replayed: []string{name},
			Error: name}}})
	p := progress{w: &out}
	p.text(name)
	if i := strings.IndexFunc(out.String(), func(r rune) bool {
		return r != '\n' && r != '\t' && printable(r) < 0
	}); i >= 0 {
		t.Errorf("got %q", out.String()[max(0, i-40):i+10])
	}
}

// onPTY runs a command line on a terminal and returns the terminal's output.
func onPTY(t *testing.T, args ...string) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	defer terminal.Close()
	got := make(chan string)
	go func() {
		text, _ := io.ReadAll(terminal) // reading ends with an error
		got <- string(text)
	}()
	old := os.Stdout
	os.Stdout = tty
	code, stderr := commandLine(t, args...)
	os.Stdout = old
	tty.Close()
	if code != 0 {
		t.Errorf("berth %s: got %d %s", strings.Join(args, " "), code, stderr)
	}
	return <-got + stderr
}

// Answers of a model and names of files do not control the terminal of berth run; a pipe receives every
// byte.
func TestAnswersGiveNoOrders(t *testing.T) {
	evil := orders + "\x1b]52;c;Y3VybA==\x07"
	text, _ := json.Marshal(evil)
	made(t, [][2]string{{"bidi\u202egpj.sh", ""}, {"sub\u009b2J/x", ""}},
		`{"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":`+string(text)+`}]}`)
	got := onPTY(t, "run", "--out", filepath.Join(t.TempDir(), "x"), "--hidden", "x")
	if strings.ContainsAny(got, "\x1b\x07\x7f\u009b\u202e") || !strings.Contains(got, "52;c;Y3VybA==") ||
		!strings.Contains(got, "bidigpj.sh") {
		t.Errorf("terminal: got %q", got)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old := os.Stdout
	os.Stdout = w
	commandLine(t, "run", "x")
	os.Stdout = old
	w.Close()
	if piped, err := io.ReadAll(r); err != nil || string(piped) != evil+"\n" {
		t.Errorf("pipe: got %q, %v, want %q", piped, err, evil)
	}
}

// Filtering text in pieces equals filtering it whole.
func TestFilter(t *testing.T) {
	text := "ä\u009bb\u202e€\x1b[2J\x9b\xff\t\nz😀\xe2\x82"
	want := "äb€[2J\ufffd\ufffd\t\nz😀"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		f := filter{w: &out}
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			if n, err := f.Write([]byte(rest[:min(size, len(rest))])); n != min(size, len(rest)) || err != nil {
				t.Fatal(n, err)
			}
		}
		if out.String() != want {
			t.Errorf("in pieces of %d: got %q, want %q", size, out.String(), want)
		}
	}
}

// A log record is one line without control characters, in both formats.
func TestLogGivesNoOrders(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		old := os.Stderr
		os.Stderr = w
		log, _ := newLogger(config.Log{Format: format})
		os.Stderr = old
		log.Info("name "+orders, "name", orders+"\nlevel=ERROR msg=forged", orders, "key", "group",
			slog.GroupValue(slog.String("x", orders)), "err", errors.New(orders))
		w.Close()
		text, err := io.ReadAll(r)
		if err != nil || strings.Count(string(text), "\n") != 1 || strings.ContainsAny(string(text),
			"\x1b\r\x07\x7f\u009b\u202e") {
			t.Errorf("%s: got %q, %v", format, text, err)
		}
		var record map[string]any
		if format == "json" && (json.Unmarshal(text, &record) != nil ||
			record["name"] != orders+"\nlevel=ERROR msg=forged") {
			t.Errorf("got %q, want the complete name, escaped", text)
		}
	}
}

// Errors, which may quote a guest, contain no control characters.
func TestErrorsGiveNoOrders(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old := os.Stderr
	os.Stderr = w
	code := Main([]string{"config", "check", "none" + orders})
	os.Stderr = old
	w.Close()
	stderr, err := io.ReadAll(r)
	if err != nil || code != 1 || len(stderr) == 0 || strings.ContainsAny(string(stderr),
		"\x1b\r\x07\x7f\u009b\u202e") {
		t.Errorf("got %q, %d, %v", stderr, code, err)
	}
}
