package exchange

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
)

// writeRates writes OpenAI's rate limit headers for a project that has limits.
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

// maxPatience is the maximum retry-after that OpenAI's clients obey. They ignore a longer
// one and retry much sooner.
const maxPatience = time.Minute

// writeRetry writes the headers for a retry after a time; 0 means unknown. If the time is
// negative (never) or longer than clients wait, the headers forbid a retry.
func writeRetry(h http.Header, after time.Duration) {
	if after > 0 {
		h.Set("retry-after", strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10))
		h.Set("retry-after-ms", strconv.FormatInt(after.Milliseconds(), 10))
	}
	if after < 0 || after > maxPatience {
		h.Set("x-should-retry", "false")
	}
}
