package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A durationValue is the value of a flag: a duration as Go writes it, with days before it, such as 30d or 1d12h.
type durationValue time.Duration

const day = 24 * time.Hour

// days matches a duration that starts with days.
var days = regexp.MustCompile(`^([0-9]+)d(.*)$`)

// Set implements pflag.Value.
func (d *durationValue) Set(s string) error {
	total, rest := time.Duration(0), s
	if m := days.FindStringSubmatch(s); m != nil {
		const most = 100 * 365
		n, err := strconv.Atoi(m[1])
		if err != nil || n > most {
			return fmt.Errorf("must be at most %d days", most)
		}
		total, rest = time.Duration(n)*day, m[2]
	}
	if rest != "" || s == "" {
		more, err := time.ParseDuration(rest)
		if err != nil || total > 0 && more < 0 {
			return fmt.Errorf("%q is no duration", s)
		}
		total += more
	}
	*d = durationValue(total)
	return nil
}

// String implements pflag.Value. It leaves out units that are zero: 1h, 30d.
func (d *durationValue) String() string {
	v := time.Duration(*d)
	if v >= day && v%day == 0 {
		return fmt.Sprintf("%dd", v/day)
	}
	s := v.String()
	if v%time.Minute == 0 && v != 0 {
		s = strings.TrimSuffix(s, "0s")
	}
	if v%time.Hour == 0 && v != 0 {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Type implements pflag.Value.
func (d *durationValue) Type() string { return "duration" }

// durationFlag adds a flag for a duration to a command. The shorthand may be empty.
func durationFlag(cmd *cobra.Command, v *time.Duration, name, shorthand string, value time.Duration, usage string) {
	*v = value
	cmd.Flags().VarP((*durationValue)(v), name, shorthand, usage)
}
