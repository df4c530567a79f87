package markdown

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/yuin/goldmark/util"
)

// A boundedBuffer is a util.BufWriter that takes no more than most bytes. Then it is full,
// and drops the rest: most of the converter's functions ignore errors. It embeds no buffer,
// whose ReadFrom would have no bound.
type boundedBuffer struct {
	buf  bytes.Buffer
	most int
	full bool
}

var _ util.BufWriter = (*boundedBuffer)(nil)

// room returns an error unless n more bytes may be written.
func (b *boundedBuffer) room(n int) error {
	if b.full = b.full || n > b.Available(); b.full {
		return fmt.Errorf("render Markdown: %w", errFull)
	}
	return nil
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if err := b.room(len(p)); err != nil {
		return 0, err
	}
	return b.buf.Write(p)
}

// WriteString implements io.StringWriter.
func (b *boundedBuffer) WriteString(s string) (int, error) {
	if err := b.room(len(s)); err != nil {
		return 0, err
	}
	return b.buf.WriteString(s)
}

// WriteByte implements io.ByteWriter.
func (b *boundedBuffer) WriteByte(c byte) error {
	if err := b.room(1); err != nil {
		return err
	}
	return b.buf.WriteByte(c)
}

// WriteRune implements util.BufWriter.
func (b *boundedBuffer) WriteRune(r rune) (int, error) {
	if err := b.room(utf8.UTFMax); err != nil {
		return 0, err
	}
	return b.buf.WriteRune(r)
}

// Available implements util.BufWriter.
func (b *boundedBuffer) Available() int { return b.most - b.buf.Len() }

// Buffered implements util.BufWriter.
func (b *boundedBuffer) Buffered() int { return 0 }

// Flush implements util.BufWriter.
func (b *boundedBuffer) Flush() error { return b.room(0) }
