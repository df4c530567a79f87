package tool

import (
	"fmt"
	"unicode/utf8"

	"github.com/berth-run/berth/guest"
)

// The two streams of a command.
const (
	stdout = iota
	stderr
)

// A clip bounds what one command says to a number of characters, of both streams
// together in the order in which they come: the first half at once, the last half
// at the end, and between them a mark that says how much was left out.
type clip struct {
	head int // characters that may still pass at once
	tail int // characters kept for the end

	partial [2][]byte // the beginning of a rune whose rest has not come
	kept    []piece   // what came after the head, oldest first
	size    int       // characters in kept
	dropped [2]int    // characters that fell out of kept
	total   [2]int64  // bytes
}

type piece struct {
	stream int
	text   []rune
}

func newClip(limit int) *clip {
	return &clip{head: limit - limit/2, tail: limit / 2}
}

// write takes output and returns what may be told at once. Bytes that are not
// UTF-8 become U+FFFD.
func (c *clip) write(stream int, b []byte) string {
	c.total[stream] += int64(len(b))
	b = append(c.partial[stream], b...)
	n := len(b)
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				n = len(b) - i
			}
			break
		}
	}
	c.partial[stream] = append([]byte(nil), b[n:]...)
	return c.pass(stream, []rune(string(b[:n])))
}

// skip counts characters that were lost before they came here; of bytes nobody
// knows more than their number.
func (c *clip) skip(stream int, n int64) {
	c.head = 0 // what comes now is the end
	c.dropped[stream] += int(n)
	c.total[stream] += n
}

func (c *clip) pass(stream int, text []rune) string {
	now := min(c.head, len(text))
	c.head -= now
	if rest := text[now:]; len(rest) > 0 {
		c.keep(stream, rest)
	}
	return string(text[:now])
}

func (c *clip) keep(stream int, text []rune) {
	if over := len(text) - c.tail; over > 0 {
		c.dropped[stream] += over
		text = text[over:]
	}
	if n := len(c.kept); n > 0 && c.kept[n-1].stream == stream {
		c.kept[n-1].text = append(c.kept[n-1].text, text...)
	} else {
		c.kept = append(c.kept, piece{stream, append([]rune(nil), text...)})
	}
	c.size += len(text)
	for c.size > c.tail {
		first := &c.kept[0]
		n := min(c.size-c.tail, len(first.text))
		c.dropped[first.stream] += n
		first.text = first.text[n:]
		c.size -= n
		if len(first.text) == 0 {
			c.kept = c.kept[1:]
		}
	}
}

// finish returns what remains to be told of each stream, and where more of it is.
func (c *clip) finish(kept [2]guest.KeptOutput) [2]string {
	var out [2]string
	for stream := range out {
		if b := c.partial[stream]; len(b) > 0 {
			c.partial[stream] = nil
			out[stream] = c.pass(stream, []rune(string(b)))
		}
	}
	for stream := range out {
		if n := c.dropped[stream]; n > 0 {
			out[stream] += fmt.Sprintf("\n[… %d characters left out%s …]\n", n, c.where(stream, kept[stream]))
		}
	}
	for _, p := range c.kept {
		out[p.stream] += string(p.text)
	}
	return out
}

// where says which file has what was left out of a stream.
func (c *clip) where(stream int, file guest.KeptOutput) string {
	switch {
	case file.Path == "":
		return ""
	case file.Bytes < c.total[stream]:
		return fmt.Sprintf("; the first %d bytes are in %s", file.Bytes, file.Path)
	}
	return "; all of it is in " + file.Path
}
