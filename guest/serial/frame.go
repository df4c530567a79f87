package serial

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A frame consists of magic, kind, the payload's length, its checksum, and the payload.
const (
	magic      = 0xb7
	headerSize = 8
	maxPayload = 16 << 10
)

type kind byte

const (
	hello kind = 1 + iota // server to guest: a new connection; its id and the server's time
	data
	end // the end of this connection
)

// idSize is the length of a connection's id. The guest repeats it raw, before the
// first frame of the connection.
const idSize = 16

// helloSize is the length of a hello's payload: id, Unix time in nanoseconds.
const helloSize = idSize + 8

var (
	errFrame = errors.New("serial: not a frame")
	table    = crc32.MakeTable(crc32.Castagnoli)
)

// appendFrame appends a frame with the payload, of up to maxPayload bytes.
func appendFrame(b []byte, k kind, payload []byte) []byte {
	b = append(b, magic, byte(k))
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(payload, table))
	return append(b, payload...)
}

// newReader returns a reader for readFrame.
func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, headerSize+maxPayload) }

// readFrame reads a frame. The payload is valid until the next read. errFrame means that
// the frame is incomplete or not one; the reader has then consumed at most the header. Any
// other error leaves the received data in the reader.
func readFrame(r *bufio.Reader) (kind, []byte, error) {
	h, err := r.Peek(headerSize)
	if err != nil {
		return 0, nil, err
	}
	k, n, sum := kind(h[1]), int(binary.BigEndian.Uint16(h[2:])), binary.BigEndian.Uint32(h[4:])
	if h[0] != magic || k < hello || k > end || n > maxPayload {
		_, _ = r.Discard(1)
		return 0, nil, errFrame
	}
	f, err := r.Peek(headerSize + n)
	if err != nil {
		return 0, nil, err
	}
	_, _ = r.Discard(headerSize + n)
	if payload := f[headerSize:]; crc32.Checksum(payload, table) == sum {
		return k, payload, nil
	}
	return 0, nil, errFrame
}
