package mux

import (
	"encoding/binary"
	"errors"
	"time"
)

// The head of a frame: version, kind, flags, stream, and a length, a window or a number.
const (
	headSize = 12

	kindData   = 0
	kindWindow = 1
	kindPing   = 2
	kindGoAway = 3
	kindArena  = 4 // offer (SYN), acceptance (ACK), refusal (RST) and end (FIN) of shared memory
	kindSlot   = 5 // returns the units of a mask, which is in the place of the length

	flagSYN    = 1 << 0
	flagACK    = 1 << 1
	flagFIN    = 1 << 2
	flagRST    = 1 << 3
	flagShared = 1 << 4 // of data: the body is in a slot, the number of whose first unit follows the head
)

const (
	// MaxAccepted is the number of streams that the guest may have open. More are reset.
	MaxAccepted = 1024
	// maxOpened is the number of streams of the server that a guest accepts.
	maxOpened = 1 << 16

	firstWindow = 256 << 10 // of each stream in each direction, by the protocol
	fullWindow  = 512 << 10 // of a stream that is read, while there is room
	wideWindow  = sideSize  // the same with an arena
	maxFrame    = 256 << 10 // bytes of a sent frame
	maxOpening  = 256       // streams that the guest has not accepted yet
	maxReplies  = 256       // waiting to be sent; more are dropped

	openTime  = 10 * time.Second // for the guest to accept a stream
	writeTime = 30 * time.Second // for the guest to read a frame
	aliveTime = 30 * time.Second // between pings; each must be answered within half of it
)

var (
	// ErrLost means that the connection has ended.
	ErrLost = errors.New("the connection to the guest is lost")
	errWire = errors.New("the guest does not keep to the protocol")
)

// A reply is a frame without a body that waits to be sent to the guest.
type reply struct {
	kind       byte
	flags      uint16
	id, length uint32
}

// append appends the frame to b.
func (r reply) append(b []byte) []byte {
	b = append(b, 0, r.kind)
	b = binary.BigEndian.AppendUint16(b, r.flags)
	b = binary.BigEndian.AppendUint32(b, r.id)
	return binary.BigEndian.AppendUint32(b, r.length)
}

var (
	// ErrReset means that the other end has reset the stream.
	ErrReset = errors.New("the stream was reset")
	errFull  = errors.New("the stream was reset: too much data of the guest was not read")
)
