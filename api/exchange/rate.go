package exchange

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
)

// writeRates writes what is left of the rates of a limited project, as OpenAI does.
func (s *Server) writeRates(h http.Header, p berth.ProjectID) {
	requests, tokens := s.Quota.Rates(p)
	writeRate(h, "requests", requests)
	writeRate(h, "tokens", tokens)
}

func writeRate(h http.Header, of string, r *project.Rate) {
	if r == nil {
		return
	}
	h.Set("x-ratelimit-limit-"+of, strconv.FormatInt(r.Limit, 10))
	h.Set("x-ratelimit-remaining-"+of, strconv.FormatInt(r.Remaining, 10))
	h.Set("x-ratelimit-reset-"+of, r.Reset.String())
}

// maxPatience is the longest that OpenAI's clients wait before they try again. When a
// header names a longer time, they try much sooner instead.
const maxPatience = time.Minute

// writeRetry writes when another attempt may succeed, and that clients must not try if
// that is never (negative) or later than they wait; 0 is unknown.
func writeRetry(h http.Header, after time.Duration) {
	if after > 0 {
		h.Set("retry-after", strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10))
		h.Set("retry-after-ms", strconv.FormatInt(after.Milliseconds(), 10))
	}
	if after < 0 || after > maxPatience {
		h.Set("x-should-retry", "false")
	}
}
