package schedules

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// Bounds of timetables.
const (
	minInterval = 60 // seconds
	maxInterval = 366 * 24 * 60 * 60
	maxCron     = 256 // bytes
	maxZone     = 64  // bytes
)

// shorthands are the names of expressions.
var shorthands = map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
	"@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}

// parser reads expressions of five fields. Seconds are not among them.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// A timetable tells when a schedule is due: at the times of a cron expression, or at intervals.
type timetable struct {
	every  time.Duration // of an interval, else 0
	anchor time.Time     // of an interval

	spec  *cron.SpecSchedule
	zone  *time.Location
	hours bool // the expression has fixed hours
}

// parse returns the timetable of a schedule.
func parse(s *Schedule) (*timetable, error) {
	switch {
	case (s.Cron == "") == (s.IntervalSeconds == 0):
		return nil, berth.Invalid("cron", "Expected either 'cron' or 'interval_seconds'.")
	case s.Cron == "" && (s.IntervalSeconds < minInterval || s.IntervalSeconds > maxInterval):
		return nil, berth.Invalid("interval_seconds", "Invalid 'interval_seconds': expected %d to %d.", minInterval,
			maxInterval)
	case s.Cron == "":
		return &timetable{every: time.Duration(s.IntervalSeconds) * time.Second, anchor: time.Unix(s.Anchor, 0)}, nil
	}
	zone, err := location(s.TimeZone)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(s.Cron)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, berth.Invalid("cron", "Invalid 'cron': %s.", rule.Clip(err.Error()))
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("the cron parser returned no fields")
	}
	t := &timetable{spec: spec, zone: zone, hours: !strings.HasPrefix(fields[1], "*")}
	if spec.Location = time.UTC; !t.hours {
		spec.Location = zone
	}
	return t, nil
}

// fieldsOf returns the five fields of an expression.
func fieldsOf(text string) ([]string, error) {
	if len(text) > maxCron {
		return nil, berth.Invalid("cron", "Invalid 'cron': it has more than %d bytes.", maxCron)
	}
	if long, ok := shorthands[strings.TrimSpace(text)]; ok {
		text = long
	}
	fields := strings.Fields(text)
	if len(fields) == 6 {
		return nil, berth.Invalid("cron",
			"Invalid 'cron': it has 6 fields. A schedule has no seconds; expected minute, hour, day of month, month and day of week.")
	}
	if len(fields) != 5 || strings.ContainsAny(text, "@=") {
		return nil, berth.Invalid("cron",
			"Invalid 'cron': expected minute, hour, day of month, month and day of week, such as '0 9 * * 1-5', or @daily. The time zone is the field 'time_zone'.")
	}
	return fields, nil
}

// location returns a time zone by its name of the IANA database.
func location(name string) (*time.Location, error) {
	if name != "" && name != "Local" && len(name) <= maxZone {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, berth.Invalid("time_zone",
		"Invalid 'time_zone': '%s' is not a name of the IANA time zone database, such as 'Europe/Berlin' or 'UTC'.",
		rule.Clip(name))
}

// next returns the first time after another one, or the zero time if there is none within five years.
//
// Where the clock is changed, expressions with a * for the hour follow the clock that people see: a skipped hour has no
// times, and an hour that comes twice has its times twice. Expressions with fixed hours are due once on such a day: a
// skipped time is due at the moment of the change, and a time that comes twice is due the first time.
func (t *timetable) next(after time.Time) time.Time {
	switch {
	case t.every > 0:
		if after.Before(t.anchor) {
			return t.anchor.Add(t.every)
		}
		return t.anchor.Add((after.Sub(t.anchor)/t.every + 1) * t.every)
	case !t.hours:
		return t.spec.Next(after)
	}
	for wall := t.spec.Next(wallOf(after.In(t.zone))); !wall.IsZero(); wall = t.spec.Next(wall) {
		if at := instant(wall, t.zone); at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// wallOf returns what a clock shows at a time, as a time in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// instant returns when the clock of a time zone first shows wall. If the clock skips it, that is the moment of the
// change.
func instant(wall time.Time, zone *time.Location) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	start, end := at.ZoneBounds()
	shown := wallOf(at)
	switch {
	case shown.After(wall):
		return start
	case shown.Before(wall):
		return end
	case start.IsZero():
		return at
	}
	_, offset := at.Zone()
	_, before := start.Add(-time.Second).Zone()
	earlier := at.Add(time.Duration(offset-before) * time.Second)
	if earlier.Before(start) && wallOf(earlier.In(zone)).Equal(wall) {
		return earlier
	}
	return at
}

// upcoming returns up to n times after another one, in Unix seconds, until the end of the schedule.
func (t *timetable) upcoming(after time.Time, end *int64, n int) []int64 {
	var all []int64
	for at := t.next(after); !at.IsZero() && len(all) < n && !over(end, at); at = t.next(at) {
		all = append(all, at.Unix())
	}
	return slices.Clip(all)
}

// over reports whether a time is after the end of a schedule; nil means no end.
func over(end *int64, at time.Time) bool { return end != nil && at.Unix() > *end }
