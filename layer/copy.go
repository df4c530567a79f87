package layer

import (
	"io"
	"sync"
)

// pieceSize is the size of reads and writes of file contents, in bytes. In a sandbox each of
// them costs the same whatever its size.
const pieceSize = 256 << 10

var pieces = sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }}

// copyContent is io.Copy in large pieces.
func copyContent(w io.Writer, r io.Reader) (int64, error) {
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, *buf)
}
