package jupyter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// maxFrame bounds one frame of a message, in bytes. A longer one is read and cut, so
// that a kernel cannot make its client use up the memory.
const maxFrame = 16 << 20

// maxStart is how much of the start of a longer frame is kept, in bytes.
const maxStart = 1 << 20

// maxFrames bounds the frames of one message.
const maxFrames = 64

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// A socket is the client's end of a ZeroMQ socket: ZMTP 3.0 with the NULL mechanism, which
// the kernels of Jupyter speak. One goroutine may read and another one write.
type socket struct {
	conn net.Conn
}

// newSocket does the handshake of a socket of this type: DEALER or SUB.
func newSocket(conn net.Conn, kind string) (*socket, error) {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	if _, err := conn.Write(greeting); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, greeting); err != nil {
		return nil, fmt.Errorf("read greeting: %w", err)
	}
	if greeting[0] != 0xff || greeting[9]&1 != 1 || greeting[10] < 3 || string(greeting[12:17]) != "NULL\x00" {
		return nil, errors.New("the other end does not speak ZMTP 3 without authentication")
	}
	s := &socket{conn}
	ready := []byte("\x05READY\x0bSocket-Type")
	ready = binary.BigEndian.AppendUint32(ready, uint32(len(kind)))
	ready = append(append(ready, kind...), "\x08Identity\x00\x00\x00\x00"...)
	if err := s.frame(flagCommand, ready); err != nil {
		return nil, err
	}
	command, flags, err := s.read()
	if err == nil && (flags&flagCommand == 0 || len(command) < 6 || string(command[:6]) != "\x05READY") {
		err = errors.New("the other end is not ready")
	}
	return s, err
}

// subscribe makes a SUB socket receive all messages.
func (s *socket) subscribe() error { return s.frame(0, []byte{1}) }

// send sends a message.
func (s *socket) send(frames [][]byte) error {
	for i, body := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := s.frame(flags, body); err != nil {
			return err
		}
	}
	return nil
}

func (s *socket) frame(flags byte, body []byte) error {
	head := []byte{flags, byte(len(body))}
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
	}
	_, err := s.conn.Write(append(head, body...))
	return err
}

// receive returns the next message. A frame above maxFrame is nil; start is that of the last
// one.
func (s *socket) receive() (frames [][]byte, start []byte, err error) {
	for {
		body, flags, err := s.read()
		if err != nil {
			return nil, nil, err
		}
		if flags&flagCut != 0 {
			start, body = body, nil
		}
		if flags&flagCommand != 0 {
			continue // such as PING
		}
		if len(frames) == maxFrames {
			return nil, nil, fmt.Errorf("a message has more than %d frames", maxFrames)
		}
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, start, nil
		}
	}
}

// flagCut marks a frame that read has cut to its start. It is not sent.
const flagCut = 0x80

func (s *socket) read() (body []byte, flags byte, err error) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(s.conn, head[:2]); err != nil {
		return nil, 0, err
	}
	flags, size := head[0]&^flagCut, uint64(head[1])
	if flags&flagLong != 0 {
		if _, err := io.ReadFull(s.conn, head[2:]); err != nil {
			return nil, 0, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > maxFrame {
		if size > 1<<40 {
			return nil, 0, fmt.Errorf("a frame claims to have %d bytes", size)
		}
		body = make([]byte, maxStart)
		if _, err = io.ReadFull(s.conn, body); err == nil {
			_, err = io.CopyN(io.Discard, s.conn, int64(size)-maxStart)
		}
		return body, flags | flagCut, err
	}
	body = make([]byte, size)
	_, err = io.ReadFull(s.conn, body)
	return body, flags, err
}
