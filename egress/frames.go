package egress

import (
	"encoding/binary"
	"io"
)

// frames are what a host says on a WebSocket. Secrets are hidden within each frame,
// without a change of its length; so nothing is held back at the end of one for what
// the next may begin with.
type frames struct {
	io.ReadWriteCloser // the host
	mask               *mask

	head    []byte        // not yet given out
	payload *maskedReader // of the frame that comes; nil between frames
	left    *io.LimitedReader
}

func (f *frames) Read(p []byte) (int, error) {
	for {
		if len(f.head) > 0 {
			n := copy(p, f.head)
			f.head = f.head[n:]
			return n, nil
		}
		if f.payload == nil {
			if err := f.next(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := f.payload.Read(p)
		if n > 0 {
			return n, nil
		}
		if err == io.EOF && f.left.N == 0 {
			f.payload = nil
		} else if err != nil {
			return 0, err
		}
	}
}

// next reads the head of a frame: RFC 6455, section 5.2.
func (f *frames) next() error {
	var head [14]byte
	if _, err := io.ReadFull(f.ReadWriteCloser, head[:2]); err != nil {
		return err
	}
	length, more := uint64(head[1]&0x7f), 0
	switch length {
	case 126:
		more = 2
	case 127:
		more = 8
	}
	masked := 0
	if head[1]&0x80 != 0 {
		masked = 4 // no host may; it is for the client to refuse
	}
	if _, err := io.ReadFull(f.ReadWriteCloser, head[2:2+more+masked]); err != nil {
		return err
	}
	switch more {
	case 2:
		length = uint64(binary.BigEndian.Uint16(head[2:]))
	case 8:
		length = binary.BigEndian.Uint64(head[2:]) &^ (1 << 63)
	}
	f.head = head[:2+more+masked]
	f.left = &io.LimitedReader{R: f.ReadWriteCloser, N: int64(length)}
	f.payload = &maskedReader{mask: f.mask, from: f.left}
	return nil
}
