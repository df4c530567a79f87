package command

import (
	"fmt"
	"strings"
)

// An excerpt is the start and the end of an output.
type excerpt struct {
	limit      int // bytes of both together
	head, tail []byte
	total      int64 // bytes of the whole
	cut        bool  // the head is complete
}

// write adds output.
func (e *excerpt) write(b []byte) {
	e.total += int64(len(b))
	if room := e.limit/2 - len(e.head); room > 0 && !e.cut {
		n := min(room, len(b))
		e.head, b = append(e.head, b[:n]...), b[n:]
	}
	if len(b) == 0 {
		return
	}
	e.cut = true
	most := e.limit - e.limit/2
	if len(b) >= most {
		e.tail = append(e.tail[:0], b[len(b)-most:]...)
		return
	}
	e.tail = append(e.tail, b...)
	if len(e.tail) > 2*most { // moved seldom, not for each piece
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-most:]...)
	}
}

// skip counts output that was lost before it arrived.
func (e *excerpt) skip(n int64) {
	if n > 0 {
		e.total += n
		e.cut = true
	}
}

// end returns the stored end.
func (e *excerpt) end() []byte {
	return e.tail[max(0, len(e.tail)-(e.limit-e.limit/2)):]
}

// dropped returns the number of bytes that are missing between the start and the end.
func (e *excerpt) dropped() int64 { return e.total - int64(len(e.head)+len(e.end())) }

// text returns the excerpt as UTF-8, with a mark where bytes are missing.
func (e *excerpt) text() string {
	text := strings.ToValidUTF8(string(e.head), "\ufffd")
	if n := e.dropped(); n > 0 {
		text += fmt.Sprintf("\n[… %d bytes left out …]\n", n)
	}
	return text + strings.ToValidUTF8(string(e.end()), "\ufffd")
}
