package mux

import (
	"context"
	"net"
	"time"
)

// send writes one frame, unless cancel is closed before its turn. It ends the session if the
// guest does not read the frame in time.
func (s *Session) send(cancel <-chan struct{}, kind byte, flags uint16, id, length uint32, body []byte) error {
	if err := s.begin(cancel); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	s.heads = reply{kind, flags, id, length}.append(s.heads[:0])
	return s.write(body)
}

// begin waits for the turn to write. The caller ends it.
func (s *Session) begin(cancel <-chan struct{}) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-s.done:
		return ErrLost
	case <-cancel:
		return context.Canceled
	}
}

// write writes s.heads and a body. The caller has the turn.
func (s *Session) write(body []byte) error {
	if len(s.heads) != headSize || s.heads[1] != kindPing {
		sent, err := s.wake()
		if err != nil {
			return err
		}
		defer sent()
	}
	if !s.guest {
		_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	}
	var err error
	if len(body) == 0 {
		_, err = s.conn.Write(s.heads)
	} else {
		s.bufs = [2][]byte{s.heads, body}
		bufs := net.Buffers(s.bufs[:])
		_, err = bufs.WriteTo(s.conn)
	}
	if err != nil {
		s.end(err)
		return ErrLost
	}
	return nil
}

// wake wakes the sandbox for a frame. The caller has the turn, and calls sent after the write.
func (s *Session) wake() (sent func(), err error) {
	if s.sleeper == nil {
		return func() {}, nil
	}
	if err := s.sleeper.Sending(); err != nil {
		s.sleeper.Sent()
		s.end(err)
		return nil, ErrLost
	}
	return s.sleeper.Sent, nil
}

// answer queues a frame for the guest, or drops it if too many wait. It does not block:
// receiving must not depend on the guest's reading.
func (s *Session) answer(r reply) {
	select {
	case s.replies <- r:
	default:
	}
}

// promise is answer for the few frames that must not be dropped.
func (s *Session) promise(r reply) {
	select {
	case s.replies <- r:
	default:
		go func() { _ = s.owe(r) }()
	}
}

// owe is answer for frames that must not be dropped. It waits while too many are queued.
func (s *Session) owe(r reply) error {
	select {
	case s.replies <- r:
		return nil
	case <-s.done:
		return ErrLost
	}
}

// reply sends the queued frames, all of them in one write.
func (s *Session) reply() {
	for {
		var first reply
		select {
		case first = <-s.replies:
		case <-s.share.kick:
		case <-s.done:
			return
		}
		if s.begin(nil) != nil {
			return
		}
		s.heads = s.heads[:0]
		if first != (reply{}) {
			s.heads = first.append(s.heads)
		}
		for more := true; more && len(s.heads) < maxReplies*headSize; {
			select {
			case r := <-s.replies:
				s.heads = r.append(s.heads)
			default:
				more = false
			}
		}
		s.heads = s.share.slots(s.heads)
		var err error
		if len(s.heads) > 0 {
			err = s.write(nil)
		}
		<-s.turn
		if err != nil {
			return
		}
	}
}
