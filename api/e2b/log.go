package e2b

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
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
func (h *sandboxes) logs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	since := int64(0)
	for _, name := range []string{"cursor", "start"} {
		since = max(since, q.Integer(name, 0, 0, math.MaxInt64))
	}
	direction, search, level := q.Text("direction"), q.Text("search"), q.Text("level")
	q.Text("limit")
	if err := q.End(); err != nil {
		return err
	}
	id := sandboxOf(r)
	if _, _, err := h.deadlines.Read(r.Context(), c.Project, id); err != nil {
		return err
	}
	limit, err := wholeNumber(r, "limit", maxSandboxLogs, maxSandboxLogs)
	if err != nil {
		return err
	}
	if direction != "" && direction != "forward" && direction != "backward" {
		return berth.Invalid("direction", "Invalid 'direction': '%s'. Supported values are: 'forward' and 'backward'.",
			rule.Clip(direction))
	}
	list, _, err := h.containers.Logs().List(r.Context(), c.Project, id, exchange.Page{Limit: maxSandboxLogs,
		Ascending: direction != "backward"})
	if err != nil {
		return err
	}
	found := []sandboxLog{}
	for _, one := range list {
		if one.CreatedAt*1000+999 < since && direction != "backward" || len(found) == limit {
			continue
		}
		entry := logOf(one)
		text := entry.Message + entry.Fields["stdout"] + entry.Fields["stderr"]
		if !strings.Contains(text, search) || level != "" && entry.Level != level {
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
		text, err := json.Marshal(entry.line())
		if err != nil {
			return fmt.Errorf("encode a line of a log: %w", err)
		}
		lines = append(lines, line{entry.Timestamp, string(text)})
	}
	return x.JSON(http.StatusOK, struct {
		Logs    []line       `json:"logs"`
		Entries []sandboxLog `json:"logEntries"`
	}{lines, found})
}

// logOf returns an entry of a container's log as one of a sandbox.
func logOf(l *berth.ContainerLog) sandboxLog {
	entry := sandboxLog{rfc3339(l.CreatedAt * 1000), "info", l.Command, map[string]string{
		"outcome": l.Outcome.Type, "duration_ms": strconv.FormatInt(l.DurationMS, 10), "stdout": l.Stdout.Text,
		"stderr": l.Stderr.Text}}
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

// line returns an entry as E2B's former logs have it: one JSON object, with the fields beside the message.
func (l sandboxLog) line() map[string]string {
	out := maps.Clone(l.Fields)
	out["timestamp"], out["level"], out["logger"], out["message"] = l.Timestamp, l.Level, "process", l.Message
	return out
}
