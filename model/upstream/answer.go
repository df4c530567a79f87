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

// An Answer decodes one answer of a vendor into deltas.
type Answer interface {
	// Events yields the data of the events in the body of the response.
	Events(in io.Reader) iter.Seq2[[]byte, error]
	// Take decodes one event and appends its deltas. After an error nothing more is
	// read.
	Take(data []byte, out []model.Delta) ([]model.Delta, error)
	// Finish appends what remains after the last event, with a model.Finish at the
	// end. It returns an error if the answer must not end there.
	Finish(out []model.Delta) ([]model.Delta, error)
	// Progress reports how far the answer has come.
	Progress() Progress
}

// A Progress is how far an answer has come.
type Progress struct {
	Started bool // an event of the dialect has arrived
	Ended   bool // the finish reason has arrived; a connection that breaks now loses nothing
	Done    bool // nothing worth waiting for follows
}

// Decode decodes an event into v. Servers differ, so it tolerates fields of another
// type than documented, except those of essential, which carry the answer. essential
// is a new value of the same form as v with only these fields.
func Decode(data []byte, v, essential any, log *slog.Logger) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
		return fmt.Errorf("decode event: %w", err)
	}
	if err := json.Unmarshal(data, essential); err != nil {
		return fmt.Errorf("decode event: not the vendor's dialect: %w", err)
	}
	log.Debug("ignored event field of undocumented type", "err", err)
	return nil
}

// Read decodes the body of a response. It yields the deltas and the Finish, or an
// error. It reports the answer's progress to in if that is a Watch.
func Read(in io.Reader, a Answer, log *slog.Logger) iter.Seq2[model.Delta, error] {
	watch, _ := in.(*Watch)
	return func(yield func(model.Delta, error) bool) {
		emit := func(deltas []model.Delta) bool {
			for _, d := range deltas {
				if !yield(d, nil) {
					return false
				}
			}
			return true
		}
		var deltas []model.Delta
		for data, err := range a.Events(in) {
			if err == nil {
				deltas, err = a.Take(data, deltas[:0])
			}
			at := a.Progress()
			if err != nil && !at.Ended {
				watch.progress(at, false)
				yield(nil, err)
				return
			}
			if err != nil {
				log.Debug("upstream connection failed after the end of the answer", "err", err)
				break
			}
			watch.progress(at, len(deltas) > 0)
			if !emit(deltas) {
				return
			}
			if at.Done {
				break
			}
		}
		deltas, err := a.Finish(deltas[:0])
		if emit(deltas) && err != nil {
			yield(nil, err)
		}
	}
}
