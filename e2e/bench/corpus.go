package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxDocument leaves out indexes of whole books.
const maxDocument = 150 << 10

// A document is a page of Debian's documentation without its title, which is the query that
// must find it.
type document struct {
	name string // its number and suffix, which reveal nothing
	text string
	path string // in the package
	// query is what the page's NAME line or title says. It is empty if that has fewer than
	// three words, or if another document has the same.
	query string
}

// corpus returns n documents, always the same ones of the installed packages, in an order
// that is random. `scripts/setup search` has installed them.
func corpus(ctx context.Context, n int) ([]document, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "berth-test", "debian-docs")
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		return nil, errNotInstalled
	}
	paths, err := documentsIn(dir)
	if err != nil {
		return nil, err
	}
	order := rand.New(rand.NewPCG(1, 2))
	order.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	var all []document
	times := map[string]int{}
	for _, path := range paths {
		if len(all) == n {
			break
		}
		d, err := readDocument(ctx, dir, path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if len(d.text) < 200 || len(d.text) > maxDocument {
			continue
		}
		d.name = fmt.Sprintf("%04d%s", len(all), filepath.Ext(d.name))
		times[strings.ToLower(d.query)]++
		all = append(all, d)
	}
	for i := range all {
		if query := all[i].query; len(strings.Fields(query)) < 3 || times[strings.ToLower(query)] > 1 {
			all[i].query = ""
		}
	}
	if len(all) < n {
		return nil, fmt.Errorf("the packages have %d documents, not %d", len(all), n)
	}
	return all, nil
}

// documentsIn returns the paths of the documents of unpacked packages, in order.
func documentsIn(dir string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		switch {
		case strings.Contains(path, "/share/man/man"), strings.Contains(path, "/git-doc/") &&
			filepath.Ext(path) == ".txt",
			strings.Contains(path, "/postgresql-doc-") && filepath.Ext(path) == ".html":
			relative, err := filepath.Rel(dir, path)
			paths = append(paths, relative)
			return err
		}
		return nil
	})
	slices.Sort(paths)
	return paths, err
}

func readDocument(ctx context.Context, dir, path string) (document, error) {
	raw, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		return document{}, err
	}
	d := document{path: path}
	switch filepath.Ext(path) {
	case ".gz":
		d.name = "x.txt"
		text, err := manual(ctx, filepath.Join(dir, "usr", "bin", "mandoc"), raw)
		if err != nil {
			return d, err
		}
		d.query, d.text = withoutMatch(text, manualName)
	case ".txt":
		d.name = "x.txt"
		d.query, d.text = withoutMatch(string(raw), gitName)
	default:
		d.name = "x.html"
		d.query, d.text = withoutTitle(string(raw))
	}
	d.query = strings.Join(strings.Fields(d.query), " ")
	return d, nil
}

// manual formats a manual page as text.
func manual(ctx context.Context, mandoc string, raw []byte) (string, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return "", err
	}
	source, err := io.ReadAll(unzipped)
	if err != nil {
		return "", err
	}
	if bytes.HasPrefix(source, []byte(".so ")) { // it only refers to another one
		return "", nil
	}
	cmd := exec.CommandContext(ctx, mandoc, "-T", "utf8", "-O", "width=100")
	cmd.Stdin = bytes.NewReader(source)
	text, err := cmd.Output()
	// it exits with 1 to 4 after warnings as well
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return "", err
	}
	return overstruck.ReplaceAllString(string(text), ""), nil
}

var (
	overstruck = regexp.MustCompile(".\b") // bold and underlined text of terminals
	// The first group of each is the line without the names before it.
	manualName = regexp.MustCompile(`(?s)\nNAME\n.*? [-–—] (.*?)\n\n`)
	gitName    = regexp.MustCompile(`(?s)\nNAME\n----\n.*? - (.*?)\n\n`)
	purpose    = regexp.MustCompile(`(?s)<div class="refnamediv">.*?<p>.*? — (.*?)</p></div>`)
	htmlTitle  = regexp.MustCompile(
		`(?s)<title>(?:(?:Chapter|Appendix|Part)[\s\x{a0}]+)?(?:[0-9A-Z.]+\.[\s\x{a0}]+)?(.*?)</title>`)
	heading    = regexp.MustCompile(`(?s)<h\d class="title".*?</h\d>`)
	navigation = regexp.MustCompile(
		`(?s)<div class="navheader">.*?<hr /></div>|<div class="navfooter">.*$|<link rel="[^"]*" href="[^"]*" title="[^"]*" />`)
	tag = regexp.MustCompile(`<[^>]*>`)
)

// withoutMatch returns the first group of what an expression finds in a text, and the text
// without it.
func withoutMatch(text string, of *regexp.Regexp) (group, rest string) {
	at := of.FindStringSubmatchIndex(text)
	if at == nil {
		return "", text
	}
	return text[at[2]:at[3]], text[:at[0]] + "\n" + text[at[1]:]
}

// withoutTitle returns what a page of PostgreSQL's manual is about, and the page without
// that, its title, and links to its neighbours, whose pages have this one's title too.
func withoutTitle(page string) (title, rest string) {
	page = navigation.ReplaceAllString(page, "")
	title, page = withoutMatch(page, htmlTitle)
	if at := heading.FindStringIndex(page); at != nil {
		page = page[:at[0]] + page[at[1]:]
	}
	if about, without := withoutMatch(page, purpose); about != "" {
		title, page = about, without
	}
	return tag.ReplaceAllString(title, ""), page
}
