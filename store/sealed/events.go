package sealed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// maxRow bounds the bytes of the events in a row, unless one event is larger: a page of
// store.PageBytes must not read much more than it returns.
const maxRow = 32 << 10

// maxWindow is the largest row, before compression, that is read.
const maxWindow = 1 << 30

// An EventRow holds consecutive events in one box.
type EventRow struct {
	First int64 // the first sequence number
	Span  int64 // how many
	Size  int64 // bytes of the events' JSON
	Box   []byte
}

var (
	packer = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(64<<10),
		zstd.WithLowerEncoderMem(true)))
	unpacker = must(zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxWindow), zstd.WithDecoderLowmem(true)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Events seals consecutive events, with the key of their response. Events repeat each
// other's fields and texts, so together they take a small part of their size.
func (k Key) Events(events []store.Event) []EventRow {
	var rows []EventRow
	for start := 0; start < len(events); {
		row := EventRow{First: events[start].SequenceNumber}
		var plain []byte
		for _, ev := range events[start:] {
			if row.Span > 0 && row.Size+int64(len(ev.Data)) > maxRow {
				break
			}
			plain = appendPiece(appendPiece(plain, string(ev.Type)), string(ev.Data))
			row.Span++
			row.Size += int64(len(ev.Data))
		}
		row.Box = k.seal(contentEvents, packer.EncodeAll(plain, nil))
		rows = append(rows, row)
		start += int(row.Span)
	}
	return rows
}

// Events opens a box of Key.Events, whose first event has the sequence number first.
func (o *Opener) Events(ctx context.Context, box []byte, first int64) ([]store.Event, error) {
	packed, err := o.open(ctx, contentEvents, box)
	if err != nil {
		return nil, err
	}
	plain, err := unpacker.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("decompress events: %w", err)
	}
	var events []store.Event
	for len(plain) > 0 {
		var kind, data []byte
		if kind, plain, err = cutPiece(plain); err == nil {
			data, plain, err = cutPiece(plain)
		}
		if err != nil {
			return nil, err
		}
		events = append(events, store.Event{SequenceNumber: first + int64(len(events)), Type: berth.EventType(kind),
			Data: data})
	}
	return events, nil
}

// appendPiece appends a text and its length before it.
func appendPiece(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cutPiece is the reverse of appendPiece.
func cutPiece(b []byte) (piece, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errors.New("packed events are cut")
	}
	b = b[size:]
	return b[:n:n], b[n:], nil
}
