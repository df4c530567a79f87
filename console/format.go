package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// functions are those that the templates call.
var functions = template.FuncMap{
	"args":       args,
	"time":       func(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) },
	"exact":      func(unix int64) string { return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04:05 UTC") },
	"age":        func(unix int64) string { return age(time.Since(time.Unix(unix, 0))) },
	"ago":        func(unix int64) string { return ago(time.Since(time.Unix(unix, 0))) },
	"bytes":      size,
	"short":      short,
	"took":       took,
	"line":       line,
	"badge":      badgeOf,
	"state":      state,
	"project":    projectState,
	"outcome":    outcome,
	"failed":     failed,
	"count":      count,
	"count64":    count64,
	"used":       usedPercent,
	"percent":    percentOf,
	"disks":      disks,
	"resp":       func(id string) bool { return strings.HasPrefix(id, berth.PrefixResponse) },
	"headOf":     func(r *berth.Response, waits bool) head { return head{r, waits} },
	"cost":       cost,
	"money":      func(c any) string { return money(costOf(c)) },
	"exactMoney": func(c any) string { return exactMoney(costOf(c)) },
	"seconds":    func(s float64) string { return fmt.Sprintf("%.1f s", s) },
}

// args returns named arguments of a component.
func args(pairs ...any) map[string]any {
	named := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		named[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return named
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

// ago formats how long a moment is past, or ahead.
func ago(d time.Duration) string {
	switch {
	case d < -time.Minute:
		return "in " + age(-d)
	case d < 10*time.Second:
		return "just now"
	}
	return age(d) + " ago"
}

// took formats the duration of a command in milliseconds.
func took(ms int64) string {
	switch {
	case ms < 1000:
		return fmt.Sprintf("%d ms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	case ms < 3_600_000:
		return fmt.Sprintf("%d min %d s", ms/60_000, ms/1000%60)
	}
	return fmt.Sprintf("%d h %d min", ms/3_600_000, ms/60_000%60)
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

// short returns the part of an id or digest that tells it from others at sight: its prefix and its end, as
// tables of the command line show it. The command line accepts it in place of the id.
func short(id string) string {
	const most, end = 22, 8
	if digest, ok := strings.CutPrefix(id, "sha256:"); ok {
		return digest[:min(len(digest), 12)]
	}
	if len(id) <= most {
		return id
	}
	if cut := strings.LastIndexAny(id[:len(id)-end], "_-") + 1; cut > 0 && cut <= 9 {
		return id[:cut] + strings.ToValidUTF8(id[len(id)-end:], "")
	}
	return strings.ToValidUTF8(id[:most], "") + "…"
}

// state returns the state of a container in a word, for a badge.
func state(c berth.Container) string {
	switch {
	case c.Status != berth.ContainerRunning:
		return "ended"
	case c.Berth.Starting:
		return "starting"
	case c.Berth.Paused:
		return "paused"
	case c.Berth.Asleep:
		return "asleep"
	}
	return "active"
}

// projectState returns the state of a project, for a badge.
func projectState(s berth.ProjectStatus) string {
	if s == berth.ProjectActive {
		return "enabled"
	}
	return string(s)
}

// outcome returns how a command ended.
func outcome(o berth.ShellOutcome) string {
	switch {
	case o.Type == "exit" && o.ExitCode != nil:
		return fmt.Sprintf("exit %d", *o.ExitCode)
	case o.Type == "unknown":
		return "detached"
	}
	return o.Type
}

// failed reports whether a command ended otherwise than with exit code 0.
func failed(o berth.ShellOutcome) bool {
	return o.Type != "exit" || o.ExitCode == nil || *o.ExitCode != 0
}

// count formats a number with commas between thousands.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func count64(n int64) string { return count(int(n)) }

// usedPercent returns the used part of a volume in percent.
func usedPercent(d berth.DiskStatus) int64 { return percentOf(d.Bytes-d.FreeBytes, d.Bytes) }

// percentOf returns a part of a whole in percent, at most 100.
func percentOf(part, whole int64) int64 {
	return min(100, max(0, int64(float64(part)/float64(max(1, whole))*100)))
}

// cost returns what a response cost; nil if its model has no price.
func cost(r *berth.Response) *berth.Cost {
	sum, known := r.Cost()
	if !known {
		return nil
	}
	return &sum
}

// costOf returns a cost that a template has as a value or by its address.
func costOf(c any) *berth.Cost {
	if value, ok := c.(berth.Cost); ok {
		return &value
	}
	return c.(*berth.Cost)
}

// symbols are the signs of currencies that stand before an amount.
var symbols = map[string]string{"usd": "$", "eur": "€", "gbp": "£"}

// money formats an amount as people write it: two decimals, and two digits of an amount below a cent.
func money(c *berth.Cost) string {
	units := c.Value.Units()
	text := strconv.FormatFloat(units, 'f', 2, 64)
	switch {
	case c.Value == 0:
		text = "0"
	case units < 0.01 && units > -0.01:
		decimals := 3
		for v := units; (v < 0.01 && v > -0.01) && decimals < 9; decimals++ {
			v *= 10
		}
		text = strings.TrimRight(strconv.FormatFloat(units, 'f', decimals, 64), "0")
	}
	if symbol, ok := symbols[strings.ToLower(c.Currency)]; ok {
		return strings.Replace(symbol+text, symbol+"-", "-"+symbol, 1)
	}
	return text + " " + strings.ToUpper(c.Currency)
}

// exactMoney formats an amount with all its decimals.
func exactMoney(c *berth.Cost) string { return c.Value.String() + " " + strings.ToUpper(c.Currency) }
