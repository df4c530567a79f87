package mux

import (
	"encoding/binary"
	"fmt"
	"io"
)

// receive reads frames until the connection ends or the guest breaks the protocol.
func (s *Session) receive() error {
	var head [headSize]byte
	for {
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return err
		}
		r := reply{head[1], binary.BigEndian.Uint16(head[2:]), binary.BigEndian.Uint32(head[4:]),
			binary.BigEndian.Uint32(head[8:])}
		if s.sleeper != nil && r.kind != kindPing {
			s.sleeper.Received()
		}
		switch {
		case head[0] != 0:
			return fmt.Errorf("%w: version %d", errWire, head[0])
		case r.kind == kindData, r.kind == kindWindow:
			if err := s.frame(r); err != nil {
				return err
			}
		case r.kind == kindPing && r.flags&flagSYN != 0:
			s.answer(reply{kindPing, flagACK | r.flags&flagShared&s.share.able(), 0, r.length})
		case r.kind == kindPing && r.length == probe:
			s.share.probed(s, r.flags&flagShared != 0)
		case r.kind == kindPing:
			s.pong.Store(r.length)
		case r.kind == kindArena, r.kind == kindSlot:
			if err := s.share.receive(s, r); err != nil {
				return err
			}
		default: // "go away", or an unknown kind
			return fmt.Errorf("%w: a frame of kind %d", errWire, r.kind)
		}
	}
}

// frame processes the frame of a stream. Its body was not read yet.
func (s *Session) frame(r reply) error {
	st, err := s.stream(r)
	if err != nil {
		return err
	}
	if r.kind == kindData && r.flags&flagShared != 0 {
		if err := s.shared(st, r); err != nil {
			return err
		}
	} else if r.kind == kindData && r.length > 0 {
		if st == nil || r.flags&flagRST != 0 {
			if r.flags&flagRST == 0 {
				s.answer(reply{kindWindow, flagRST, r.id, 0})
			}
			return s.discard(int(r.length))
		}
		if r.length >= minShared {
			s.share.large(s)
		}
		if err := st.receive(int(r.length)); err != nil {
			return err
		}
	}
	if st == nil {
		return nil
	}
	if r.kind == kindWindow {
		if err := st.allow(r.length); err != nil {
			return err
		}
	}
	switch {
	case r.flags&flagRST != 0:
		s.forget(st)
		st.fail(ErrReset)
	case r.flags&flagFIN != 0 && st.ended():
		s.forget(st)
	}
	return nil
}

// shared processes a frame whose body is in a slot.
func (s *Session) shared(st *Stream, r reply) error {
	var slot [4]byte
	if _, err := io.ReadFull(s.in, slot[:]); err != nil {
		return err
	}
	a := s.share.arena.Load()
	if a == nil || r.length > slotSize {
		return fmt.Errorf("%w: a body in shared memory that it does not have", errWire)
	}
	c, err := a.borrow(binary.BigEndian.Uint32(slot[:]), int(r.length))
	if err != nil {
		return err
	}
	if st == nil || r.flags&flagRST != 0 {
		s.share.giveBack(c)
		if r.flags&flagRST == 0 {
			s.answer(reply{kindWindow, flagRST, r.id, 0})
		}
		return nil
	}
	return st.receiveShared(c)
}

// stream returns the stream of a frame. It creates one if the frame opens it.
func (s *Session) stream(r reply) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[r.id]
	if r.flags&flagACK != 0 && st != nil {
		s.established(st)
	}
	if r.flags&flagSYN == 0 || s.err != nil {
		return st, nil
	}
	if st != nil || !s.foreign(r.id) || r.id == 0 {
		return nil, fmt.Errorf("%w: it opens stream %d", errWire, r.id)
	}
	if limit := MaxAccepted; s.accepted < limit || s.guest && s.accepted < maxOpened {
		st = newStream(s, r.id)
		select {
		case s.accept <- st:
			s.streams[r.id] = st
			s.accepted++
			return st, nil
		default:
		}
	}
	s.answer(reply{kindWindow, flagRST, r.id, 0})
	return nil, nil
}

func (s *Session) discard(n int) error {
	_, err := s.in.Discard(n)
	return err
}
