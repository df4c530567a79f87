package engine

import (
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// timing returns the timing of the call of the model, which ends now with f or failed with err.
func (w *turnWriter) timing(f model.Finish, err error) berth.Timing {
	t := timingSince(berth.TimingModel, w.began)
	t.Upstream, t.Model = f.Origin.Upstream, f.Origin.Model
	if t.Model == "" {
		t.Model = w.run.record.Body.Model
	}
	if !w.first.IsZero() {
		t.FirstTokenMS = new(w.first.Sub(w.began).Milliseconds())
	}
	if err != nil {
		t.Error = chatError(err)
		return t
	}
	t.Usage, t.Cost = &f.Usage, f.Cost
	return t
}

// addToolTiming adds the timing of a hosted call that started at a time and ends now.
func (r *run) addToolTiming(call berth.Item, outcome string, start time.Time) {
	t := timingSince(berth.TimingTool, start)
	t.ItemID, t.ItemType = call.ID(), call.Type()
	if outcome != OutcomeOK {
		t.Error = outcome
	}
	r.writer.AddTiming(t)
}

// timingSince returns a timing from start until now.
func timingSince(kind berth.TimingType, start time.Time) berth.Timing {
	return berth.Timing{Type: kind, StartedAtMS: start.UnixMilli(), DurationMS: max(0, time.Since(start).Milliseconds())}
}
