package egress

import (
	"encoding/binary"
	"errors"
	"io"
)

// frames reads what a host sends on a WebSocket and hides secrets in it: RFC 6455,
// section 5. A word is found wherever it begins in a message, also if it continues in
// the next fragment. Masking changes no lengths, so a message in one frame passes as
// it comes. A message in fragments is cut again where its bytes are ready; nothing is
// delayed but what may be the beginning of a secret, and control frames overtake that.
type frames struct {
	io.ReadWriteCloser // the host
	mask               *mask

	out     []byte        // to be read next
	whole   *maskedReader // the payload of a message in one frame; nil outside of one
	pieces  *maskedReader // of a message in fragments; nil outside of one
	opcode  byte          // of the next fragment that is written
	left    uint64        // bytes of the current fragment that were not read
	final   bool          // the current fragment is the last of its message
	reading bool          // inside of a fragment
	buf     []byte
}

// The first byte of a frame, and the opcodes that are defined.
const (
	frameFinal    = 0x80
	frameReserved = 0x70 // extensions use these bits; none was offered
	frameOpcode   = 0x0f

	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPong         = 0xa

	frameMasked = 0x80 // of the second byte; a host masks nothing
	maxControl  = 125
)

// errFrame ends a WebSocket whose frames another reader might understand in another way.
var errFrame = errors.New("the host's WebSocket frames cannot be read")

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

// next reads the head of a frame, and all of a control frame.
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

// fragment reads from the current fragment and writes what is ready as one of its own.
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

// frameHead returns what precedes a payload.
func frameHead(first byte, length int) []byte {
	switch {
	case length <= maxControl:
		return []byte{first, byte(length)}
	case length < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{first, 126}, uint16(length))
	}
	return binary.BigEndian.AppendUint64([]byte{first, 127}, uint64(length))
}

// An exactReader ends after a number of bytes. An earlier end is an error.
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
