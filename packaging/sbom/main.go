// Command sbom writes the bill of materials of Go programs as CycloneDX 1.6 JSON, from the module
// versions and checksums that the compiler stores in them.
//
//	go run ./packaging/sbom -version 0.1.0 bin/berth bin/berth-runsc
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A bom is the part of a CycloneDX document that this command writes.
type bom struct {
	Format      string      `json:"bomFormat"` // "CycloneDX"
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string      `json:"type"` // "application" or "library"
	Name       string      `json:"name"`
	Version    string      `json:"version"`
	PURL       string      `json:"purl,omitempty"`
	Hashes     []hash      `json:"hashes,omitempty"`
	Properties []property  `json:"properties,omitempty"`
	Components []component `json:"components,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"` // hexadecimal
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	version := flag.String("version", "", "version of the release")
	flag.Parse()
	if err := write(os.Stdout, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, version string, programs []string) error {
	doc := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{component{Type: "application", Name: "berth", Version: version,
			PURL: "pkg:golang/github.com/berth-run/berth@" + version}}}
	for _, path := range programs {
		program, err := programOf(path, version)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		doc.Components = append(doc.Components, program)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// programOf returns a program with the modules that it is made of.
func programOf(path, version string) (component, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return component{}, err
	}
	c := component{Type: "application", Name: filepath.Base(path), Version: version,
		Properties: []property{{"go:version", info.GoVersion}}}
	c.Components = append(c.Components, component{Type: "library", Name: "std",
		Version: strings.TrimPrefix(info.GoVersion, "go"),
		PURL:    "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "" || m.Version == "(devel)" { // a module of this repository
			continue
		}
		lib := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" +
			m.Version}
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
			lib.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
		}
		c.Components = append(c.Components, lib)
	}
	slices.SortFunc(c.Components, func(a, b component) int { return strings.Compare(a.Name, b.Name) })
	return c, nil
}
