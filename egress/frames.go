package egress

import (
	"encoding/binary"
	"errors"
	"io"
)

// frames reads a host's WebSocket frames (RFC 6455, section 5) and masks secrets in them. It
// finds a secret at any position of a message, also across fragments. Masking preserves
// lengths, so that a message of one frame passes unchanged in form. A fragmented message is
// split anew where its bytes are ready. The end of an incomplete line is held back; control frames
// overtake it.
type frames struct {
	io.ReadWriteCloser // the host
	mask               *mask

	out     []byte        // the next bytes to return
	whole   *maskedReader // payload of a message of one frame; nil outside of one
	pieces  *maskedReader // payload of a fragmented message; nil outside of one
	opcode  byte          // opcode of the next fragment to write
	left    uint64        // unread bytes of the current fragment
	final   bool          // the current fragment is the last of its message
	reading bool          // inside of a fragment
	buf     []byte
}

// Bits of a frame's first byte, and the defined opcodes.
const (
	frameFinal    = 0x80
	frameReserved = 0x70 // used by extensions; none was offered
	frameOpcode   = 0x0f

	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPong         = 0xa

	frameMasked = 0x80 // in the second byte; hosts must not set it
	maxControl  = 125
)

// errFrame is returned for frames that another reader might interpret differently.
var errFrame = errors.New("malformed WebSocket frame from the host")

func (f *frames) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		switch {
		case f.whole != nil:
			n, err := f.whole.Read(p)
			if n > 0 {
				return n, nil
			}
			if err != io.EOF {
				return 0, err
			}
			f.whole = nil
		case f.reading:
			if err := f.fragment(); err != nil {
				return 0, err
			}
		default:
			if err := f.next(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// next reads the header of a frame, and the payload of a control frame.
func (f *frames) next() error {
	var head [10]byte
	if _, err := io.ReadFull(f.ReadWriteCloser, head[:2]); err != nil {
		return err
	}
	opcode, final := head[0]&frameOpcode, head[0]&frameFinal != 0
	length, more := uint64(head[1]&^frameMasked), 0
	switch length {
	case 126:
		more = 2
	case 127:
		more = 8
	}
	if _, err := io.ReadFull(f.ReadWriteCloser, head[2:2+more]); err != nil {
		return err
	}
	switch more {
	case 2:
		length = uint64(binary.BigEndian.Uint16(head[2:]))
	case 8:
		length = binary.BigEndian.Uint64(head[2:])
	}
	if head[0]&frameReserved != 0 || head[1]&frameMasked != 0 || length>>63 != 0 {
		return errFrame
	}
	switch {
	case opcode >= opClose && opcode <= opPong && final && length <= maxControl:
		payload := make([]byte, length)
		if _, err := io.ReadFull(f.ReadWriteCloser, payload); err != nil {
			return err
		}
		f.out = append(head[:2:2], f.mask.replace(string(payload))...)
		return nil
	case (opcode == opText || opcode == opBinary) && f.pieces == nil:
		if final {
			f.out = head[:2+more]
			f.whole = &maskedReader{mask: f.mask, from: &exactReader{f.ReadWriteCloser, length}}
			return nil
		}
		f.pieces, f.opcode = &maskedReader{mask: f.mask}, opcode
	case opcode == opContinuation && f.pieces != nil:
	default:
		return errFrame
	}
	f.left, f.final, f.reading = length, final, true
	return nil
}

// fragment reads from the current fragment and emits the ready bytes as a fragment.
func (f *frames) fragment() error {
	if f.buf == nil {
		f.buf = make([]byte, 16<<10)
	}
	var ready []byte
	if f.left > 0 {
		n, err := f.ReadWriteCloser.Read(f.buf[:min(f.left, uint64(len(f.buf)))])
		f.left -= uint64(n)
		if n == 0 && err != nil {
			return err
		}
		ready = f.pieces.push(f.buf[:n])
	}
	f.reading = f.left > 0
	first := f.opcode
	if ends := f.final && !f.reading; ends {
		ready = append(ready, f.pieces.end()...)
		first |= frameFinal
		f.pieces = nil
	} else if len(ready) == 0 {
		return nil
	}
	f.out, f.opcode = append(frameHead(first, len(ready)), ready...), opContinuation
	return nil
}

// frameHead returns a frame's header.
func frameHead(first byte, length int) []byte {
	switch {
	case length <= maxControl:
		return []byte{first, byte(length)}
	case length < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{first, 126}, uint16(length))
	}
	return binary.BigEndian.AppendUint64([]byte{first, 127}, uint64(length))
}

// An exactReader reads exactly left bytes. An earlier EOF is an error.
type exactReader struct {
	from io.Reader
	left uint64
}

func (r *exactReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.from.Read(p[:min(uint64(len(p)), r.left)])
	r.left -= uint64(n)
	if err == io.EOF && r.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
