package e2e

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A snippet is a fenced block of a document.
type snippet struct {
	page     string // path below the repository
	line     int    // of its first line of text
	language string
	text     string
	skip     string // why it is not run; "" runs it
	output   bool   // it shows the output of the block before it
}

var (
	fenceLine = regexp.MustCompile("^( *)(`{3,})(\\w*)([^`]*)$")
	notRun    = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
)

// snippets returns the fenced blocks of a page. A comment in the line above a block,
// "not run:" and a reason, excludes it. A block without a language that follows another
// block directly, or JSON that follows a shell block, is the output of that block.
func snippets(page, text string) (all []snippet) {
	var open *snippet
	fence, indent, above := "", "", ""
	direct := false // nothing but blank lines since the last block
	for i, line := range strings.Split(text, "\n") {
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, fence = &snippet{page: page, line: i + 2, language: m[3]}, m[2]
			indent = m[1]
			if reason := notRun.FindStringSubmatch(strings.TrimSpace(above)); reason != nil {
				open.skip = reason[1]
			}
			if len(all) > 0 && direct && open.skip == "" {
				last := all[len(all)-1]
				open.output = last.skip == "" && (m[3] == "" && slices.Contains([]string{"sh", "python", "js"},
					last.language) || m[3] == "json" && last.language == "sh")
			}
		case open != nil && m != nil && len(m[2]) >= len(fence) && m[3]+m[4] == "":
			all = append(all, *open)
			open, above, direct = nil, "", true
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case strings.TrimSpace(line) != "":
			above, direct = line, false
		}
	}
	return all
}

// pages returns the snippets of the documents for users, by path below the repository.
func pages(t *testing.T) map[string][]snippet {
	t.Helper()
	all := map[string][]snippet{}
	for _, pattern := range []string{"../docs/*.md", "../README.md", "../HACKING.md", "../SECURITY.md",
		"../examples/README.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no page is %s: %v", pattern, err)
		}
		for _, path := range paths {
			page, _ := filepath.Rel("..", path)
			all[page] = snippets(page, read(t, path))
		}
	}
	return all
}

func TestSnippets(t *testing.T) {
	got := snippets("p",
		"# P\n\n```sh\nls\n```\n\n```\nfile\n```\n\ntext\n\n````sh\necho '```'\n````\n1. List:\n   <!-- not run: no reason -->\n   ```yaml\n   a: 1\n   ```\n")
	want := []snippet{
		{page: "p", line: 4, language: "sh", text: "ls\n"},
		{page: "p", line: 8, text: "file\n", output: true},
		{page: "p", line: 14, language: "sh", text: "echo '```'\n"},
		{page: "p", line: 19, language: "yaml", text: "a: 1\n", skip: "no reason"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

// TestDocsParse parses the blocks that TestDocs does not run. Configurations (yaml) are
// loaded by TestManuals in server.
func TestDocsParse(t *testing.T) {
	berth := binary(t)
	all := pages(t)
	for _, name := range exampleNames(t) {
		page := filepath.Join("examples", name, "README.md")
		all[page] = snippets(page, read(t, filepath.Join("..", page)))
	}
	for _, all := range all {
		for _, s := range all {
			switch {
			case s.language == "sh":
				if out, err := bashCheck(s.text); err != nil {
					t.Errorf("%s:%d: %v\n%s", s.page, s.line, err, out)
				}
				if s.skip != "" {
					s.checkFlags(t, berth)
				}
			case slices.Contains([]string{"json", "python", "js", "yaml"}, s.language), s.output, s.skip != "":
			default:
				t.Errorf("%s:%d: no test runs a block of language %q: name one, or write <!-- not run: REASON --> above it",
					s.page, s.line, s.language)
			}
		}
	}
}

// bashCheck has bash parse a script.
func bashCheck(script string) ([]byte, error) {
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(script)
	return cmd.CombinedOutput()
}

var (
	berthLine = regexp.MustCompile(
		`(?m)^(?:sudo )?(?:[A-Z_]+=\S+ )*(?:docker compose run --rm )?berth ([a-z][a-z-]*)(?: ([a-z]+))?([^#\n]*)`)
	longFlag = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// checkFlags compares the commands of a block that is not run, and their flags, with the
// help of the command line.
func (s snippet) checkFlags(t *testing.T, berth string) {
	t.Helper()
	for _, m := range berthLine.FindAllStringSubmatch(s.text, -1) {
		args := []string{m[1]}
		if m[2] != "" {
			args = append(args, m[2])
		}
		help, err := exec.Command(berth, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s:%d: berth %s: %v\n%s", s.page, s.line, strings.Join(args, " "), err, help)
			continue
		}
		rest, _, _ := strings.Cut(m[3], " -- ")
		for _, flag := range longFlag.FindAllString(rest, -1) {
			if !regexp.MustCompile(regexp.QuoteMeta(flag) + `\b`).Match(help) {
				t.Errorf("%s:%d: berth %s has no flag %s", s.page, s.line, strings.Join(args, " "), flag)
			}
		}
	}
}

// placeholder is an abbreviated id: it is replaced by the last one that was printed.
var placeholder = regexp.MustCompile(`^(cntr|snap|resp|proj|key|whe|vol|pmpt)_…`)

// fillIn replaces abbreviated ids in a shell script by calls of the function last.
func fillIn(script string) string {
	var b strings.Builder
	var quote byte // ' or " in which the place is, or 0
	for i := 0; i < len(script); i++ {
		c := script[i]
		if m := placeholder.FindStringSubmatch(script[i:]); m != nil {
			call := "$(last " + m[1] + "_)"
			if quote == '\'' {
				call = `'"` + call + `"'`
			}
			b.WriteString(call)
			i += len(m[0]) - 1
			continue
		}
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(script):
			b.WriteByte(c)
			i++
			c = script[i]
		case c == '#' && quote == 0 && (i == 0 || strings.IndexByte(" \t\n", script[i-1]) >= 0):
			end := strings.IndexByte(script[i:], '\n')
			if end < 0 {
				return b.String()
			}
			i += end
			c = '\n'
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		}
		b.WriteByte(c)
	}
	return b.String()
}

func TestFillIn(t *testing.T) {
	for script, want := range map[string]string{
		"rm cntr_… # it's snap_…\nls": "rm $(last cntr_) \nls",
		`curl '{"a": "snap_…"}'`:      `curl '{"a": "'"$(last snap_)"'"}'`,
		`echo "resp_…" \"'vol_…'`:     `echo "$(last resp_)" \"''"$(last vol_)"''`,
		"tar resp_….tar":              "tar $(last resp_).tar",
	} {
		if got := fillIn(script); got != want {
			t.Errorf("%s: got %s, want %s", script, got, want)
		}
	}
}

// pattern returns a regular expression for the output that a block shows. "…" matches
// any text; durations and the amount of white space may differ.
func pattern(shown string) *regexp.Regexp {
	text := regexp.QuoteMeta(strings.Join(strings.Fields(shown), " "))
	text = strings.ReplaceAll(text, "…", ".*?")
	text = regexp.MustCompile(`\d+\\\.\d+ ?s\b`).ReplaceAllString(text, `\d+\.\d+ ?s`)
	text = regexp.MustCompile(`_ms":\d+`).ReplaceAllString(text, `_ms":\d+`)
	return regexp.MustCompile(text)
}

// TestTroubleshooting looks for the messages that the page explains in the sources.
func TestTroubleshooting(t *testing.T) {
	var sources strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			sources.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`…|\b(?:[A-Z]{2,}|N)\b`)
	checked := 0
	for line := range strings.Lines(read(t, "../docs/troubleshooting.md")) {
		message, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(message, -1) {
			for _, part := range variable.Split(quoted[1], -1) {
				checked++
				if part = strings.Trim(part, " ()"); !strings.Contains(sources.String(), part) {
					t.Errorf("no source has the message %q", part)
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d messages were found", checked)
	}
}
