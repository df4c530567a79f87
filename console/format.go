package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// functions are those that the templates call.
var functions = template.FuncMap{
	"time":    func(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) },
	"age":     func(unix int64) string { return age(time.Since(time.Unix(unix, 0))) },
	"bytes":   size,
	"short":   short,
	"took":    took,
	"state":   state,
	"outcome": outcome,
	"failed":  func(o berth.ShellOutcome) bool { return o.Type != "exit" || o.ExitCode == nil || *o.ExitCode != 0 },
	"count":   count,
	"count64": count64,
	"used":    usedPercent,
	"disks":   disks,
	"resp":    func(id string) bool { return strings.HasPrefix(id, berth.PrefixResponse) },
	"headOf":  func(r *berth.Response, form string) head { return head{r, form} },
	"cost":    cost,
	"money":   money,
	"seconds": func(s float64) string { return fmt.Sprintf("%.1f s", s) },
}

// age formats a time span with its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// took formats the duration of a command in milliseconds.
func took(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	if ms < 60_000 {
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	}
	return fmt.Sprintf("%d min %d s", ms/60_000, ms/1000%60)
}

// size formats a number of bytes.
func size(n int64) string {
	const units = "kMGT"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}

// short returns the part of an id or digest that tells it from others at sight.
func short(id string) string {
	const most = 22
	id = strings.TrimPrefix(id, "sha256:")
	if len(id) > most {
		return id[:most] + "…"
	}
	return id
}

// state returns the state of a container in a few words.
func state(c berth.Container) string {
	switch {
	case c.Status != berth.ContainerRunning && c.Berth.Reason != "":
		return "ended: " + c.Berth.Reason
	case c.Status != berth.ContainerRunning:
		return string(c.Status)
	case c.Berth.Starting:
		return "starting"
	case c.Berth.Paused:
		return "paused"
	case c.Berth.Asleep:
		return "asleep"
	}
	return "running"
}

// outcome returns how a command ended.
func outcome(o berth.ShellOutcome) string {
	if o.Type == "exit" && o.ExitCode != nil {
		return fmt.Sprintf("exit %d", *o.ExitCode)
	}
	return o.Type
}

// count formats a number with spaces between thousands.
func count(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func count64(n int64) string { return count(int(n)) }

// usedPercent returns the used part of a volume in percent.
func usedPercent(d berth.DiskStatus) int64 {
	return int64(float64(d.Bytes-d.FreeBytes) / float64(max(1, d.Bytes)) * 100)
}

// cost returns what a response cost; "" if its model has no price.
func cost(r *berth.Response) string {
	sum, known := r.Cost()
	if !known {
		return ""
	}
	return money(sum)
}

// money formats an amount with its currency.
func money(c berth.Cost) string { return c.Value.String() + " " + strings.ToUpper(c.Currency) }
