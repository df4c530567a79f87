package engine

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Retry configures how often a turn is requested again after a temporary error. A turn
// that failed before its first delta leaves no trace. A turn that broke off later has its
// open items closed as incomplete. Its finished calls stay: if there are any, they are
// answered before the model is called again.
type Retry struct {
	Attempts int           // at a turn; default 4
	Patience time.Duration // total wait between the attempts at a turn; default 2 minutes
	Final    bool          // fail the response if a turn breaks off after its first delta
}

// firstPause is about the pause before the second attempt. It doubles with each further
// attempt. An upstream that sends Retry-After sets the pause instead.
const firstPause = 250 * time.Millisecond

// A turnAttempts counts the attempts at one turn.
type turnAttempts struct {
	Retry
	number int           // of the current one, from 0
	waited time.Duration // so far
}

func newTurnAttempts(r Retry) *turnAttempts {
	a := &turnAttempts{Retry: r}
	a.Attempts = cmp.Or(a.Attempts, 4)
	a.Patience = cmp.Or(a.Patience, 2*time.Minute)
	return a
}

// next reports whether to try again after an error, and after which pause. begun means
// that the model had sent a delta.
func (a *turnAttempts) next(err error, begun bool) (time.Duration, bool) {
	reached := !errors.Is(err, model.ErrNotSent)
	if reached && a.number+1 >= a.Attempts || !retriable(err) || begun && a.Final {
		return 0, false
	}
	d, known := model.RetryAfter(err)
	if !known {
		d = firstPause << min(a.number, 10)
		d = d/2 + rand.N(d/2+1)
	} else {
		d += rand.N(min(d/10, time.Second) + 1) // spreads clients of one upstream
	}
	if d > a.Patience-a.waited {
		return 0, false // an earlier attempt would be refused
	}
	if reached {
		a.number++
	}
	a.waited += d
	return d, true
}

// A broken error is Berth's own. Another attempt would fail as well.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

func retriable(err error) bool {
	if errors.As(err, new(broken)) {
		return false
	}
	code := berth.ErrorCode(err)
	return code == berth.CodeRateLimited || code == berth.CodeUpstream
}
