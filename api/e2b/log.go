package e2b

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// maxSandboxLogs is how many commands of a sandbox one answer may have.
const maxSandboxLogs = 1000

// A sandboxLog is a command that ended in a sandbox.
type sandboxLog struct {
	Timestamp string            `json:"timestamp"` // RFC 3339: when the command started
	Level     string            `json:"level"`     // error if it did not exit with 0
	Message   string            `json:"message"`   // the command
	Fields    map[string]string `json:"fields"`
}

// logs serves GET /v2/sandboxes/{sandbox}/logs and GET /sandboxes/{sandbox}/logs: the commands of a
// sandbox, in the order of their ends, with the start of their output.
func (d *Door) logs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := r.URL.Query()
	id := sandboxOf(r)
	if _, _, err := d.read(r.Context(), c.Project, id); err != nil {
		return err
	}
	limit, err := wholeNumber(r, "limit", maxSandboxLogs, maxSandboxLogs)
	if err != nil {
		return err
	}
	since := int64(0)
	for _, name := range []string{"cursor", "start"} {
		if text := q.Get(name); text != "" {
			if since, err = strconv.ParseInt(text, 10, 64); err != nil {
				return berth.Invalid(name, "Invalid '%s': expected Unix milliseconds.", name)
			}
		}
	}
	direction := q.Get("direction")
	if direction != "" && direction != "forward" && direction != "backward" {
		return berth.Invalid("direction", "Invalid 'direction': '%s'. Supported values are: 'forward' and 'backward'.", rule.Clip(direction))
	}
	list, _, err := d.Containers.Logs().List(r.Context(), c.Project, id, store.Page{Limit: maxSandboxLogs, Ascending: direction != "backward"})
	if err != nil {
		return err
	}
	found := []sandboxLog{}
	for _, one := range list {
		if one.CreatedAt*1000+999 < since && direction != "backward" || len(found) == limit {
			continue
		}
		entry := logOf(one)
		if q.Get("search") != "" && !strings.Contains(entry.Message+entry.Fields["stdout"]+entry.Fields["stderr"], q.Get("search")) || q.Get("level") != "" && entry.Level != q.Get("level") {
			continue
		}
		found = append(found, entry)
	}
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		return x.JSON(http.StatusOK, struct {
			Logs []sandboxLog `json:"logs"`
		}{found})
	}
	type line struct {
		Timestamp string `json:"timestamp"`
		Line      string `json:"line"`
	}
	lines := []line{}
	for _, entry := range found {
		lines = append(lines, line{entry.Timestamp, entry.Message})
	}
	return x.JSON(http.StatusOK, struct {
		Logs    []line       `json:"logs"`
		Entries []sandboxLog `json:"logEntries"`
	}{lines, found})
}

// logOf returns an entry of a container's log as one of a sandbox.
func logOf(l *berth.ContainerLog) sandboxLog {
	entry := sandboxLog{rfc3339(l.CreatedAt * 1000), "info", l.Command, map[string]string{
		"outcome": l.Outcome.Type, "duration_ms": strconv.FormatInt(l.DurationMS, 10), "stdout": l.Stdout.Text, "stderr": l.Stderr.Text}}
	if l.User != "" {
		entry.Fields["user"] = l.User
	}
	if code := l.Outcome.ExitCode; code != nil {
		entry.Fields["exit_code"] = strconv.Itoa(*code)
	}
	if entry.Fields["exit_code"] != "0" {
		entry.Level = "error"
	}
	return entry
}
