package scripted

import (
	"regexp"
	"strings"
)

var (
	// fences are the lines with which tools mark data.
	fences = regexp.MustCompile(`^(\[(begin|end) [0-9a-f]{16}\b.*\]|--- (begin|end) \S+ ---)$`)
	// mark is the mark with which a result of a search is cited.
	mark = regexp.MustCompile(`【[^【】\n]*†[^【】\n]*】`)
)

// quote returns the last line of an output. Of the results of a search it returns the line
// of the first result that has the most words of the query, with the mark of that result.
func quote(output, query string) string {
	first := mark.FindStringIndex(output)
	if first == nil {
		return lastLine(strings.Join(unfenced(output), "\n"))
	}
	result := output[first[1]:]
	if next := mark.FindStringIndex(result); next != nil {
		result = result[:next[0]]
	}
	var best string
	most := -1
	for _, line := range unfenced(result) {
		if n := common(line, query); n > most && strings.TrimSpace(line) != "" {
			best, most = strings.TrimSpace(line), n
		}
	}
	return best + " " + output[first[0]:first[1]]
}

// unfenced returns the lines of an output without those that mark it as data.
func unfenced(output string) []string {
	var lines []string
	for line := range strings.Lines(output) {
		if line = strings.TrimRight(line, "\n"); !fences.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

var wordsOf = regexp.MustCompile(`[\pL\pN]+`)

// common returns how many words of a query a line has.
func common(line, query string) (n int) {
	has := map[string]bool{}
	for _, w := range wordsOf.FindAllString(strings.ToLower(line), -1) {
		has[w] = true
	}
	for _, w := range wordsOf.FindAllString(strings.ToLower(query), -1) {
		if has[w] {
			n++
			delete(has, w)
		}
	}
	return n
}
