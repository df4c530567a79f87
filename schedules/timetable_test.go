package schedules

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// times returns the next n times of a timetable in its time zone.
func times(t *testing.T, s Schedule, after string, n int) []string {
	t.Helper()
	table, err := parse(&s)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for range n {
		if at = table.next(at); at.IsZero() {
			break
		}
		all = append(all, at.In(zone).Format("01-02 15:04 -0700"))
	}
	return all
}

// Where the clock is changed, fixed hours are due once and a * follows the clock.
func TestDaylightSaving(t *testing.T) {
	for _, test := range []struct {
		name, cron, zone, after string
		want                    []string
	}{
		{"skipped time", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"03-29 03:00 +0200", "03-30 02:30 +0200"}},
		{"skipped times", "0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"03-29 03:00 +0200", "03-30 02:00 +0200"}},
		{"skipped and next time", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"03-29 03:00 +0200", "03-30 02:00 +0200"}},
		{"skipped hour", "0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z",
			[]string{"03-29 03:00 +0200", "03-29 04:00 +0200"}},
		{"skipped midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z",
			[]string{"04-24 01:00 +0300", "04-25 00:00 +0300"}},
		{"double time", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"10-25 02:30 +0200", "10-26 02:30 +0100"}},
		{"double times", "0,30 2 * * *", "America/New_York", "2026-10-31T20:00:00Z",
			[]string{"11-01 02:00 -0500", "11-01 02:30 -0500"}},
		{"double time, from between", "30 1 * * *", "America/New_York", "2026-11-01T06:10:00Z",
			[]string{"11-02 01:30 -0500"}},
		{"double hour", "30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z",
			[]string{"10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"}},
		{"half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"10-04 02:30 +1100", "10-05 02:15 +1100"}},
		{"zone without changes", "0 9 * * 1-5", "Asia/Tokyo", "2026-11-27T12:00:00Z",
			[]string{"11-30 09:00 +0900", "12-01 09:00 +0900"}},
		{"leap day", "0 0 29 2 *", "UTC", "2026-11-27T12:00:00Z", []string{"02-29 00:00 +0000"}},
		{"never", "0 0 30 2 *", "UTC", "2026-11-27T12:00:00Z", nil},
		{"never, by the hour", "0 * 30 2 *", "UTC", "2026-11-27T12:00:00Z", nil},
		{"named", "@weekly", "UTC", "2026-11-27T12:00:00Z", []string{"11-29 00:00 +0000", "12-06 00:00 +0000"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := times(t, Schedule{Cron: test.cron, TimeZone: test.zone}, test.after, max(1, len(test.want)))
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Intervals count from an anchor, however late a run is.
func TestIntervals(t *testing.T) {
	anchor := time.Date(2026, 11, 28, 10, 0, 20, 0, time.UTC).Unix()
	got := times(t, Schedule{IntervalSeconds: 900, Anchor: anchor, TimeZone: "UTC"}, "2026-11-28T10:31:00Z", 2)
	if want := []string{"11-28 10:45 +0000", "11-28 11:00 +0000"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRefusedTimetables(t *testing.T) {
	for _, s := range []Schedule{
		{},
		{Cron: "* * * * *", IntervalSeconds: 60},
		{IntervalSeconds: 59},
		{IntervalSeconds: -60},
		{IntervalSeconds: maxInterval + 1},
		{Cron: "* * * * * *"}, // every second
		{Cron: "@every 1s"},
		{Cron: "@reboot"},
		{Cron: "* * * *"},
		{Cron: "60 * * * *"},
		{Cron: "*/0 * * * *"},
		{Cron: "-1 * * * *"},
		{Cron: "TZ=UTC * * * *"},
		{Cron: "CRON_TZ= * * * *"},
		{Cron: "TZ=0"}, // a parser once panicked
		{Cron: strings.Repeat("1,", 200) + "1 * * * *"},
		{Cron: "* * * * *", TimeZone: "Local"},
		{Cron: "* * * * *", TimeZone: "-"},
		{Cron: "* * * * *", TimeZone: "../../etc/passwd"},
		{Cron: "* * * * *", TimeZone: "Mars/Olympus"},
	} {
		if s.TimeZone == "" {
			s.TimeZone = "UTC"
		}
		if _, err := parse(&s); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%+v: got %v", s, err)
		}
	}
}

func FuzzCron(f *testing.F) {
	f.Add("30 2 * * *", "Europe/Berlin", int64(1_774_700_000))
	f.Add("*/7 */3 1-15 jan-mar sun", "America/St_Johns", int64(1_790_000_000))
	f.Fuzz(func(t *testing.T, expression, zone string, after int64) {
		table, err := parse(&Schedule{Cron: expression, TimeZone: zone})
		if err != nil {
			return
		}
		at := time.Unix(after%(1<<33), 0)
		for range 3 {
			next := table.next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("%v is not after %v", next, at)
			}
			at = next
		}
	})
}
