package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestDurationValue(t *testing.T) {
	for in, want := range map[string]struct {
		value time.Duration
		text  string
	}{
		"30d":    {30 * day, "30d"},
		"1d12h":  {36 * time.Hour, "36h"},
		"720h":   {30 * day, "30d"},
		"20m":    {20 * time.Minute, "20m"},
		"1h30m":  {90 * time.Minute, "1h30m"},
		"1m30s":  {90 * time.Second, "1m30s"},
		"0":      {0, "0s"},
		"1h0m5s": {time.Hour + 5*time.Second, "1h0m5s"},
	} {
		var got durationValue
		if err := got.Set(in); err != nil || time.Duration(got) != want.value || got.String() != want.text {
			t.Errorf("%s: got %s (%d), %v; want %s", in, &got, got, err, want.text)
		}
	}
	for _, in := range []string{"", "d", "1", "1d-1h", "99999999999999999999d", "1.5d", "36501d"} {
		if err := new(durationValue).Set(in); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}

// All flags for durations accept days.
func TestDurationFlags(t *testing.T) {
	seen := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			seen++
			if err := f.Value.Set("2d"); err != nil {
				t.Errorf("%s --%s: %v", cmd.CommandPath(), f.Name, err)
			}
			if strings.Contains(f.Usage, "20h") {
				t.Errorf("%s --%s counts days in hours: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot())
	if seen < 8 {
		t.Errorf("found %d flags for durations", seen)
	}
}
