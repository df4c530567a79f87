package upstream

import (
	"context"
	"iter"

	"github.com/berth-run/berth/model"
)

// A Turn is one request to a vendor whose response streams.
type Turn struct {
	Model   string                   // for errors
	Send    Send                     // sends the request
	Answer  func() Answer            // returns a decoder of the response
	Explain func(*Refusal) Complaint // decodes the vendor's errors
}

// Stream sends a turn and yields its answer as model.Provider specifies.
func (u *Upstream) Stream(ctx context.Context, t Turn) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		watched, w := newWatch(ctx, u.FirstToken, u.Silence)
		defer w.stop()
		fail := func(err error) { yield(nil, u.failure(ctx, watched, t.Model, err, t.Explain)) }
		res, err := t.Send(watched)
		if err != nil {
			fail(err)
			return
		}
		defer res.Body.Close()
		if res.StatusCode/100 != 2 {
			fail(refuse(res))
			return
		}
		w.watch(res.Body)
		output := false
		for d, err := range Read(w, t.Answer(), u.Log) {
			finish, over := d.(model.Finish)
			if err == nil && over && !output && finish.Reason == model.FinishStop && finish.Usage.OutputTokens == 0 {
				err = errEmpty
			}
			if err != nil {
				fail(w.explain(res, err))
				return
			}
			output = output || !over
			if !yield(d, nil) {
				return
			}
		}
	}
}

// Fail returns a stream that consists of an error.
func Fail(err error) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) { yield(nil, err) }
}
