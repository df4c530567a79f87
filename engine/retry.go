package engine

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Retry says how a turn is asked again whose error may pass. A turn that failed
// before its first word is as if it had not been asked. Of one that broke off, what
// was said is closed as incomplete, and the calls that were finished are facts: if
// there are any, they are answered before the model is asked again.
type Retry struct {
	Attempts int           // at a turn; default 4
	Patience time.Duration // that is spent on waiting between them; default 2 minutes
	Final    bool          // a turn that broke off is not asked again: the response fails
}

// firstPause is about how long is waited before the second attempt; before each
// further one, twice as long. An upstream that says how long is believed.
const firstPause = 250 * time.Millisecond

// A patience is what is left of the attempts at one turn.
type patience struct {
	Retry
	attempt int           // the present one, from 0
	waited  time.Duration // so far
}

func (e *Engine) patience() *patience {
	p := &patience{Retry: e.Retry}
	p.Attempts = cmp.Or(p.Attempts, 4)
	p.Patience = cmp.Or(p.Patience, 2*time.Minute)
	return p
}

// more reports whether there is another attempt after an error, and when. begun says
// that the model had said something.
func (p *patience) more(err error, begun bool) (time.Duration, bool) {
	asked := !errors.Is(err, model.ErrNotAsked)
	if asked && p.attempt+1 >= p.Attempts || !retriable(err) || begun && p.Final {
		return 0, false
	}
	d, said := model.RetryAfter(err)
	if !said {
		d = firstPause << min(p.attempt, 10)
		d = d/2 + rand.N(d/2+1)
	} else {
		d += rand.N(min(d/10, time.Second) + 1) // not all at the same time
	}
	if d > p.Patience-p.waited {
		return 0, false // asked earlier, it would refuse
	}
	if asked {
		p.attempt++
	}
	p.waited += d
	return d, true
}

// broken marks an error of Berth's own, which asking again would not mend.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

func retriable(err error) bool {
	if errors.As(err, new(broken)) {
		return false
	}
	code := berth.ErrorCode(err)
	return code == berth.CodeRateLimited || code == berth.CodeUpstream
}
