package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// greeting is the first output of a relay, after it has connected.
const greeting = "ok\n"

// maxComplaint bounds the recorded part of a relay's standard error, in bytes.
const maxComplaint = 1 << 10

// A stream is a connection over a relay's standard streams. The engine sends both outputs in
// frames, each after a header: the number of the output, three zeros and the length.
//
// A Read may be interrupted by a deadline and repeated.
type stream struct {
	net.Conn
	in *bufio.Reader

	header    [8]byte
	have      int // bytes of the header
	left      int // bytes of the frame
	complaint []byte
}

// Numbers of the outputs.
const (
	stdout = 1
	stderr = 2
)

// greeting returns when the relay has connected, or has reported why it cannot.
func (s *stream) greeting() error {
	said := make([]byte, len(greeting))
	_, err := io.ReadFull(s, said)
	if err == nil && string(said) == greeting {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the relay sent %q", said)
	}
	if words := strings.TrimSpace(strings.ToValidUTF8(string(s.complaint), "?")); words != "" {
		err = fmt.Errorf("the relay in the sandbox: %q", words)
	}
	return err
}

// Read reads the relay's standard output.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		for s.left == 0 {
			if err := s.next(); err != nil {
				return 0, err
			}
		}
		if s.header[0] == stdout {
			n, err := s.in.Read(p[:min(len(p), s.left)])
			s.left -= n
			return n, err
		}
		if err := s.complain(); err != nil {
			return 0, err
		}
	}
}

// next reads the header of a frame.
func (s *stream) next() error {
	for s.have < len(s.header) {
		n, err := s.in.Read(s.header[s.have:])
		if s.have += n; err != nil {
			if errors.Is(err, io.EOF) && s.have > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	s.have = 0
	if s.header[0] != stdout && s.header[0] != stderr {
		return fmt.Errorf("the engine sent output %d", s.header[0])
	}
	s.left = int(binary.BigEndian.Uint32(s.header[4:]))
	return nil
}

// complain records a part of a frame of the standard error.
func (s *stream) complain() error {
	var buf [512]byte
	n, err := s.in.Read(buf[:min(len(buf), s.left)])
	s.left -= n
	s.complaint = append(s.complaint, buf[:min(n, maxComplaint-len(s.complaint))]...)
	return err
}
