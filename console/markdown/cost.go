package markdown

import "strings"

// Bounds of Markdown. The converter needs time in the square of the first two.
const (
	maxMarks = 2000   // in a paragraph
	maxDepth = 16     // of quotes and lists
	maxCells = 20_000 // of all tables of a text, with those that rows are filled up with
)

// maxCheap is the number of bytes of a text that this process may render.
const maxCheap = 32 << 10

// A cost is what counts of a text before it is converted. It is never less than what the
// converter will make of the text.
type cost struct {
	marks int // most of a paragraph
	depth int // most of a line
	cells int // of all tables
}

// cheap reports whether the text may be rendered in this process: its nodes and its HTML are
// linear in its length. Tables that people write have less than one cell for each byte.
func (c cost) cheap(text string) bool {
	return len(text) <= maxCheap && c.marks <= maxMarks && c.depth <= maxDepth && c.cells <= len(text)
}

// excessive reports whether no process should render the text, unlike texts that people write.
func (c cost) excessive() bool { return c.marks > maxMarks || c.depth > maxDepth }

// costOf counts a text without building anything. It takes for a paragraph all lines between
// two blank ones. So a paragraph may count too much, but not too little.
func costOf(text string) (c cost) {
	var marks, rows, columns int
	for line := range strings.Lines(text) {
		if strings.Trim(line, " \t\r\n") == "" {
			c.cells += rows * columns
			marks, rows, columns = 0, 0, 0
			continue
		}
		rows++
		if delimits(line) {
			columns = max(columns, strings.Count(line, "|")+1)
		}
		start, depth := afterMarkers(line)
		c.depth = max(c.depth, depth)
		for i := range len(start) {
			if strings.IndexByte("*_~[]`<", start[i]) >= 0 {
				marks++
			}
		}
		c.marks = max(c.marks, marks)
	}
	c.cells += rows * columns
	return c
}

// delimits reports whether a line may be the one below the head of a table, also in a quote
// or a list.
func delimits(line string) bool {
	return strings.Contains(line, "-") && strings.Trim(line, "|:-> \t\v\f\r\n*+.)0123456789") == ""
}

// afterMarkers returns what follows the markers of quotes and lists at the start of a line, and their number.
func afterMarkers(line string) (rest string, markers int) {
	for rest = strings.TrimLeft(line, blanks); rest != ""; rest = strings.TrimLeft(rest, blanks) {
		after := rest[1:]
		switch c := rest[0]; {
		case c == '>':
		case c == '-' || c == '*' || c == '+':
			if !blank(after) {
				return rest, markers
			}
		case '0' <= c && c <= '9':
			after = strings.TrimLeft(after, "0123456789")
			if after == "" || after[0] != '.' && after[0] != ')' || !blank(after[1:]) {
				return rest, markers
			}
			after = after[1:]
		default:
			return rest, markers
		}
		rest, markers = after, markers+1
	}
	return rest, markers
}

// blanks are what may follow the marker of a list.
const blanks = " \t\v\f\r\n"

// blank reports whether a text is empty or begins with white space.
func blank(text string) bool { return text == "" || strings.IndexByte(blanks, text[0]) >= 0 }
