package container

import (
	"fmt"
	"strings"

	"github.com/berth-run/berth"
)

// An excerpt is the beginning and the end of a stream.
type excerpt struct {
	head, tail []byte
	total      int64
}

// half is the size of each end of an excerpt.
const half = 4 << 10

func (x *excerpt) write(data []byte, skipped int64) {
	x.total += skipped + int64(len(data))
	if skipped == 0 && len(x.tail) == 0 {
		n := min(half-len(x.head), len(data))
		x.head = append(x.head, data[:n]...)
		data = data[n:]
	}
	x.tail = append(x.tail, data...)
	if over := len(x.tail) - half; over > 0 {
		x.tail = append(x.tail[:0], x.tail[over:]...)
	}
}

func (x *excerpt) text() berth.LogText {
	text := string(x.head)
	if left := x.total - int64(len(x.head)) - int64(len(x.tail)); left > 0 {
		text += leftOut(left)
	}
	return berth.LogText{Text: strings.ToValidUTF8(text+string(x.tail), "\uFFFD"), Bytes: x.total}
}

// shorten bounds the length of a command.
func shorten(command string) string {
	if len(command) > 2*half {
		n := int64(len(command) - 2*half)
		command = command[:half] + leftOut(n) + command[len(command)-half:]
	}
	return strings.ToValidUTF8(command, "\uFFFD")
}

func leftOut(n int64) string { return fmt.Sprintf("\n[… %d bytes left out …]\n", n) }
