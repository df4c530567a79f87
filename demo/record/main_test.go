package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	lines, err := record(t.Context(), "echo one; echo '<two>' >&2; exit 3")
	if err != nil || len(lines) != 2 || lines[0].text != "one" || lines[1].text != "<two>" {
		t.Fatalf("got %+v, %v", lines, err)
	}
	lines[1].at = 1500 * time.Millisecond
	if got := svg(lines); !strings.Contains(got, `style="animation-delay:1.50s">&lt;two&gt;</text>`) {
		t.Error(got)
	}
	if got := wrap(strings.Repeat("é", columns+1)); len(got) != 2 || got[1] != "é" {
		t.Errorf("got %q", got)
	}
}

// TestRecording compares the commands of the recording in the documents with session.sh.
func TestRecording(t *testing.T) {
	raw, err := os.ReadFile("../../docs/recording.svg")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("session.sh")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	decoder := xml.NewDecoder(strings.NewReader(string(raw)))
	command := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			command = len(token.Attr) > 2 && token.Attr[2].Value == "c"
		case xml.CharData:
			if text := string(token); command && strings.TrimSpace(text) != "" {
				shown = append(shown, text[2:])
			}
		}
	}
	var want []string
	for _, c := range commands(string(script)) {
		want = append(want, strings.Split(c, "\n")...)
	}
	if strings.Join(shown, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/recording.svg shows %q, and session.sh has %q: run make recording", shown, want)
	}
}
