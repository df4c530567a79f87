package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/berth-run/berth/model"
)

// An Answer makes deltas of one answer, in one vendor's dialect.
type Answer interface {
	// Take appends what an event says. After an error nothing more is read.
	Take(data []byte, out []model.Delta) ([]model.Delta, error)
	// Finish appends what is left to be said after the last event, a model.Finish at
	// the end, or says what is wrong with an answer that ends there.
	Finish(out []model.Delta) ([]model.Delta, error)
	// Begun reports whether an event of the dialect has come.
	Begun() bool
	// Ended reports whether the upstream has said why it ended: whatever breaks
	// afterwards is not missed.
	Ended() bool
	// Done reports whether nothing follows that is worth waiting for.
	Done() bool
}

// Decode reads an event into v. Fields of another type than documented are tolerated,
// because servers differ, but not those of essential, which are what the answer says:
// a new value of the same form that has only these.
func Decode(data []byte, v, essential any, log *slog.Logger) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
		return fmt.Errorf("an event is malformed: %w", err)
	}
	if err := json.Unmarshal(data, essential); err != nil {
		return fmt.Errorf("an event does not fit the dialect: %w", err)
	}
	log.Debug("a field of an event has another type than documented", "err", err)
	return nil
}

// Read yields what an answer says, and its Finish or an error. The events are those
// of in; if that is a Watch, it is told of the answer's beginning and end.
func Read(in io.Reader, events iter.Seq2[[]byte, error], a Answer, log *slog.Logger) iter.Seq2[model.Delta, error] {
	watch, _ := in.(*Watch)
	return func(yield func(model.Delta, error) bool) {
		tell := func(deltas []model.Delta) bool {
			for _, d := range deltas {
				if !yield(d, nil) {
					return false
				}
			}
			return true
		}
		var deltas []model.Delta
		for data, err := range events {
			if err == nil {
				deltas, err = a.Take(data, deltas[:0])
				watch.begin(a.Begun())
			}
			if err != nil && !a.Ended() {
				yield(nil, err)
				return
			}
			if err != nil {
				log.Debug("the upstream broke off after the end of its answer", "err", err)
				break
			}
			watch.heard(len(deltas) > 0, a.Ended())
			if !tell(deltas) {
				return
			}
			if a.Done() {
				break
			}
		}
		deltas, err := a.Finish(deltas[:0])
		if tell(deltas) && err != nil {
			yield(nil, err)
		}
	}
}
