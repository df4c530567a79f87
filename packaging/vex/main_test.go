package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// document writes a document with statements, each "VULNERABILITY MODULE STATUS".
func writeDocument(t *testing.T, statements ...string) string {
	t.Helper()
	doc := document{Context: "https://openvex.dev/ns/v0.2.0"}
	for _, text := range statements {
		fields := strings.Fields(text)
		var s statement
		s.Vulnerability.Name, s.Status = fields[0], fields[2]
		s.Products = []product{{"Unknown Product", []component{{fields[1]}}}}
		if s.Status == "not_affected" {
			s.Justification = "vulnerable_code_not_in_execute_path"
		}
		doc.Statements = append(doc.Statements, s)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, string(raw))
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "vex.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const accepted = `[{"vulnerability": {"name": "GO-1"}, "status": "not_affected", "justification": "inline_mitigations_already_exist"}]`

// A vulnerability that one of the programs reaches is an error until somebody has said why it does not matter.
func TestJoin(t *testing.T) {
	unreached := writeDocument(t, "GO-1 pkg:golang/stdlib@v1 not_affected", "GO-2 pkg:golang/a@v1 not_affected")
	reached := writeDocument(t, "GO-1 pkg:golang/stdlib@v1 affected")
	out := filepath.Join(t.TempDir(), "berth.vex.json")
	for _, files := range [][]string{{unreached, reached}, {reached, unreached}} {
		err := run("1.2.3", out, files, []byte("[]"))
		if err == nil || !strings.Contains(err.Error(), "GO-1 in pkg:golang/stdlib@v1") ||
			strings.Contains(err.Error(), "GO-2") {
			t.Errorf("got the error %v", err)
		}
	}
	if err := run("1.2.3", out, []string{unreached, reached}, []byte(accepted)); err != nil {
		t.Errorf("with the statement of a person: %v", err)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Statements) != 2 || doc.Statements[0].Justification != "inline_mitigations_already_exist" ||
		doc.Statements[1].Products[0].ID != "pkg:golang/github.com/berth-run/berth@1.2.3" {
		t.Errorf("got %s", raw)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	first := writeFile(t, "")
	second := writeFile(t, "")
	for _, file := range []string{first, second} {
		if err := run("1.2.3", file, []string{unreached}, []byte("[]")); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := os.ReadFile(first)
	if b, _ := os.ReadFile(second); string(a) != string(b) || len(a) == 0 {
		t.Errorf("the second time the document differs: %s, %s", a, b)
	}
}

func TestErrors(t *testing.T) {
	good := writeDocument(t)
	for want, c := range map[string]struct{ file, made string }{
		"no such file":                  {file: "/nonexistent", made: "[]"},
		"no OpenVEX document":           {file: writeFile(t, "{}"), made: "[]"},
		"unexpected EOF":                {file: writeFile(t, "{"), made: "[]"},
		"vulnerability, status or subc": {file: writeFile(t, `{"@context":"https://openvex.dev/ns/v0.2.0","statements":[{}]}`), made: "[]"},
		"statements.json":               {file: good, made: "{"},
		"has no justification":          {file: good, made: `[{"vulnerability": {"name": "GO-1"}, "status": "not_affected"}]`},
	} {
		if err := run("1", "", []string{c.file}, []byte(c.made)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
