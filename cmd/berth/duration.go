package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/config"
)

// A durationValue is the value of a flag: a duration as Go writes it, with days before it, such as 30d or 1d12h.
type durationValue time.Duration

const day = 24 * time.Hour

// Set implements pflag.Value.
func (d *durationValue) Set(s string) error {
	v, err := config.ParseDuration(s)
	if err != nil {
		return err
	}
	*d = durationValue(v)
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
