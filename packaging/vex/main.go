// Command vex joins the OpenVEX documents that govulncheck writes for the modules of Berth into one for a release, and
// fails if Berth is affected by a vulnerability:
//
//	go run ./packaging/vex -version 0.1.0 -o berth.vex.json main.json runsc.json
//
// statements.json beside it has statements that people made. They replace those about the same vulnerability: it is
// where a maintainer says why a function that govulncheck finds reachable cannot be abused here.
package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A document is OpenVEX 0.2.0: https://github.com/openvex/spec.
type document struct {
	Context    string      `json:"@context"`
	ID         string      `json:"@id"`
	Author     string      `json:"author"`
	Timestamp  time.Time   `json:"timestamp"`
	Version    int         `json:"version"`
	Tooling    string      `json:"tooling,omitempty"`
	Statements []statement `json:"statements"`
}

type statement struct {
	Vulnerability struct {
		ID          string   `json:"@id,omitempty"`
		Name        string   `json:"name"`
		Description string   `json:"description,omitempty"`
		Aliases     []string `json:"aliases,omitempty"`
	} `json:"vulnerability"`
	Products      []product `json:"products"`
	Status        string    `json:"status"` // "not_affected", "affected", "fixed" or "under_investigation"
	Justification string    `json:"justification,omitempty"`
	Impact        string    `json:"impact_statement,omitempty"`
	Action        string    `json:"action_statement,omitempty"`
}

type product struct {
	ID            string      `json:"@id"`
	Subcomponents []component `json:"subcomponents,omitempty"`
}

type component struct {
	ID string `json:"@id"`
}

//go:embed statements.json
var made []byte

func main() {
	version := flag.String("version", "", "version of the release")
	out := flag.String("o", "", "file to write; none: only check")
	flag.Parse()
	if *version == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: vex -version VERSION [-o FILE] DOCUMENT…")
		os.Exit(2)
	}
	if err := run(*version, *out, flag.Args(), made); err != nil {
		fmt.Fprintln(os.Stderr, "vex:", err)
		os.Exit(1)
	}
}

// run joins the documents in files. It writes the result also if its error says that Berth is affected.
func run(version, out string, files []string, made []byte) error {
	at, err := sourceDate()
	if err != nil {
		return err
	}
	var people []statement
	if err := json.Unmarshal(made, &people); err != nil {
		return fmt.Errorf("statements.json: %w", err)
	}
	var docs []document
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		doc, err := read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		docs = append(docs, doc)
	}
	joined, err := join(version, at, docs, people)
	if err != nil {
		return err
	}
	if out != "" {
		raw, err := json.MarshalIndent(joined, "", "  ")
		if err == nil {
			err = os.WriteFile(out, append(raw, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	var affected []string
	for _, s := range joined.Statements {
		if s.Status != "not_affected" && s.Status != "fixed" {
			affected = append(affected, s.Vulnerability.Name+" in "+s.Products[0].Subcomponents[0].ID)
		}
	}
	if len(affected) > 0 {
		return fmt.Errorf("known vulnerabilities in code that Berth calls: %s; update it, or add a statement to packaging/vex/statements.json",
			strings.Join(affected, ", "))
	}
	return nil
}

// read reads one document of govulncheck.
func read(r io.Reader) (document, error) {
	var doc document
	if err := json.NewDecoder(r).Decode(&doc); err != nil {
		return doc, err
	}
	if !strings.HasPrefix(doc.Context, "https://openvex.dev/ns/") {
		return doc, errors.New("it is no OpenVEX document")
	}
	for _, s := range doc.Statements {
		if s.Vulnerability.Name == "" || s.Status == "" || len(s.Products) == 0 ||
			len(s.Products[0].Subcomponents) == 0 {
			return doc, fmt.Errorf("a statement has no vulnerability, status or subcomponent: %+v", s)
		}
	}
	return doc, nil
}

// join returns the document about a version of Berth. If there are several statements about one vulnerability in one
// module, one that is not "not_affected" counts: the vulnerability concerns Berth if it concerns one of its programs.
func join(version string, at time.Time, docs []document, people []statement) (document, error) {
	id := "pkg:golang/github.com/berth-run/berth@" + version
	type about struct{ vulnerability, component string }
	all := map[about]statement{}
	for _, doc := range docs {
		for _, s := range doc.Statements {
			k := about{s.Vulnerability.Name, s.Products[0].Subcomponents[0].ID}
			if had, ok := all[k]; !ok || had.Status == "not_affected" {
				s.Products[0].ID = id
				all[k] = s
			}
		}
	}
	for _, p := range people {
		if p.Status == "not_affected" && p.Justification == "" {
			return document{}, fmt.Errorf("statements.json: %s has no justification", p.Vulnerability.Name)
		}
		for k, s := range all {
			if k.vulnerability == p.Vulnerability.Name {
				s.Status, s.Justification, s.Impact, s.Action = p.Status, p.Justification, p.Impact, p.Action
				all[k] = s
			}
		}
	}
	joined := document{Context: "https://openvex.dev/ns/v0.2.0", ID: "https://github.com/berth-run/berth/vex/" + version,
		Author: "The Berth authors", Timestamp: at, Version: 1,
		Tooling: "https://pkg.go.dev/golang.org/x/vuln/cmd/govulncheck", Statements: []statement{}}
	for _, s := range all {
		joined.Statements = append(joined.Statements, s)
	}
	slices.SortFunc(joined.Statements, func(a, b statement) int {
		return cmp.Or(strings.Compare(a.Vulnerability.Name, b.Vulnerability.Name),
			strings.Compare(a.Products[0].Subcomponents[0].ID, b.Products[0].Subcomponents[0].ID))
	})
	return joined, nil
}

// sourceDate returns the time of SOURCE_DATE_EPOCH, or the present one.
func sourceDate() (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		return time.Now().UTC().Truncate(time.Second), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}
