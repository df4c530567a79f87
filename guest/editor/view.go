package editor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// context is the number of lines around a change that the model sees.
const context = 4

// splitLines returns the lines of a text without their ends. The end of the last line is optional.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// countLines returns the number of lines of a text in words.
func countLines(text string) string {
	if n := len(splitLines(text)); n != 1 {
		return fmt.Sprintf("%d lines", n)
	}
	return "1 line"
}

func (c *command) view(out io.Writer) error {
	if info, err := os.Stat(c.Path); err == nil && info.IsDir() {
		if c.ViewRange != nil {
			return fmt.Errorf("%s is a directory, which has no view_range", c.Path)
		}
		return list(out, c.Path)
	}
	text, err := c.read()
	if err != nil {
		return err
	}
	lines := splitLines(text)
	first, last := 1, len(lines)
	if c.ViewRange != nil {
		if first, last, err = c.lineRange(len(lines)); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		_, err := fmt.Fprintf(out, "%s is empty.\n", c.Path)
		return err
	}
	return show(out, lines, first, last)
}

// lineRange returns the requested lines of a file with n lines.
func (c *command) lineRange(n int) (first, last int, err error) {
	if len(c.ViewRange) != 2 {
		return 0, 0, errors.New("view_range needs two numbers: the first and the last line")
	}
	first, last = c.ViewRange[0], c.ViewRange[1]
	switch {
	case first < 1 || first > max(n, 1):
		return 0, 0, fmt.Errorf("view_range starts at line %d; the file has %d lines, counted from 1", first, n)
	case last == -1 || last > n:
		last = n
	case last < first:
		return 0, 0, fmt.Errorf("view_range ends at line %d, before its start", last)
	}
	return first, last, nil
}

// show writes lines with their numbers. first and last are counted from 1.
func show(out io.Writer, lines []string, first, last int) error {
	w := bufio.NewWriter(out)
	for i := max(first, 1); i <= min(last, len(lines)); i++ {
		fmt.Fprintf(w, "%6d\t%s\n", i, lines[i-1])
	}
	return w.Flush()
}

// list writes the files of a directory and of those in it. It leaves out hidden ones and node_modules.
func list(out io.Writer, dir string) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%s, two levels deep, without hidden files:\n", dir)
	left := maxEntries
	var walk func(path string, depth int) error
	walk = func(path string, depth int) error {
		entries, err := os.ReadDir(path)
		if err != nil && depth == 1 {
			return fmt.Errorf("cannot list %s: %w", path, cause(err))
		}
		for _, e := range entries { // none if a directory below cannot be read
			if strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" {
				continue
			}
			if left--; left < 0 {
				return nil
			}
			below := filepath.Join(path, e.Name())
			if !e.IsDir() {
				fmt.Fprintln(w, below)
				continue
			}
			fmt.Fprintln(w, below+"/")
			if depth < 2 {
				if err := walk(below, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(dir, 1); err != nil {
		return err
	}
	if left < 0 {
		fmt.Fprintf(w, "(Only the first %d are listed.)\n", maxEntries)
	}
	return w.Flush()
}
