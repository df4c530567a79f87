package config

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// days matches a duration that starts with days.
var days = regexp.MustCompile(`^([0-9]+)d(.*)$`)

// ParseDuration parses a duration as Go writes it, with days before it, such as 30d or 1d12h.
func ParseDuration(s string) (time.Duration, error) {
	total, rest := time.Duration(0), s
	if m := days.FindStringSubmatch(s); m != nil {
		const most = 100 * 365
		n, err := strconv.Atoi(m[1])
		if err != nil || n > most {
			return 0, fmt.Errorf("must be at most %d days", most)
		}
		total, rest = time.Duration(n)*24*time.Hour, m[2]
	}
	if rest != "" || s == "" {
		more, err := time.ParseDuration(rest)
		if err != nil || total > 0 && more < 0 {
			return 0, fmt.Errorf("%q is no duration", s)
		}
		total += more
	}
	return total, nil
}
