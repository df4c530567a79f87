package shell

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

// A clip limits the output of one command to a number of characters. Both streams count
// together, in the order of their output. The first half passes immediately and the last half
// at the end. A mark between them states how much was left out.
type clip struct {
	head int // characters that may still pass immediately
	tail int // characters held until the end

	partial [2][]byte // the first bytes of an incomplete rune
	held    []piece   // output after the head, oldest first
	size    int       // characters in held
	dropped [2]int    // characters removed from held
	total   [2]int64  // bytes
}

type piece struct {
	stream int
	text   []rune
}

func newClip(limit int) *clip {
	limit = max(limit, 0)
	return &clip{head: limit - limit/2, tail: limit / 2}
}

// write adds output and returns the part that passes immediately. Bytes that are not UTF-8
// become U+FFFD.
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

// skip counts output that was lost before it arrived, one byte as one character.
func (c *clip) skip(stream int, n int64) {
	c.head = 0 // the rest belongs to the last half
	c.dropped[stream] += int(n)
	c.total[stream] += n
}

func (c *clip) pass(stream int, text []rune) string {
	now := min(c.head, len(text))
	c.head -= now
	if rest := text[now:]; len(rest) > 0 {
		c.hold(stream, rest)
	}
	return string(text[:now])
}

func (c *clip) hold(stream int, text []rune) {
	if over := len(text) - c.tail; over > 0 {
		c.dropped[stream] += over
		text = text[over:]
	}
	if n := len(c.held); n > 0 && c.held[n-1].stream == stream {
		c.held[n-1].text = append(c.held[n-1].text, text...)
	} else {
		c.held = append(c.held, piece{stream, append([]rune(nil), text...)})
	}
	c.size += len(text)
	for c.size > c.tail {
		first := &c.held[0]
		n := min(c.size-c.tail, len(first.text))
		c.dropped[first.stream] += n
		first.text = first.text[n:]
		c.size -= n
		if len(first.text) == 0 {
			c.held = c.held[1:]
		}
	}
}

// finish returns the rest of each stream, with a mark for output that was left out. The
// mark names the stream's file, if that has more of the output.
func (c *clip) finish(files [2]guest.OutputFile) [2]string {
	var out [2]string
	for stream := range out {
		if b := c.partial[stream]; len(b) > 0 {
			c.partial[stream] = nil
			out[stream] = c.pass(stream, []rune(string(b)))
		}
	}
	for stream := range out {
		if n := c.dropped[stream]; n > 0 {
			out[stream] += fmt.Sprintf("\n[… %d characters left out%s …]\n", n, c.where(stream, files[stream]))
		}
	}
	for _, p := range c.held {
		out[p.stream] += string(p.text)
	}
	return out
}

// where returns a reference to the file with the output of a stream, for the mark.
func (c *clip) where(stream int, file guest.OutputFile) string {
	switch {
	case file.Path == "":
		return ""
	case file.Bytes < c.total[stream]:
		return fmt.Sprintf("; the first %d bytes are in %s", file.Bytes, file.Path)
	}
	return "; all of it is in " + file.Path
}
