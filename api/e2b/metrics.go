package e2b

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
)

// A metric is the use of resources at a time.
type metric struct {
	At         string  `json:"timestamp"` // RFC 3339
	AtUnix     int64   `json:"timestampUnix"`
	CPUCount   int     `json:"cpuCount"`
	CPUUsedPct float64 `json:"cpuUsedPct"` // of one core, the mean since the sandbox was created
	MemUsed    int64   `json:"memUsed"`    // bytes, as all below
	MemTotal   int64   `json:"memTotal"`
	MemCache   int64   `json:"memCache"`
	DiskUsed   int64   `json:"diskUsed"` // written on top of the template
	DiskTotal  int64   `json:"diskTotal"`
}

// metrics serves GET /sandboxes/{sandbox}/metrics. No history is kept: the list has the present
// values, unless the request asks for an earlier time.
func (h *sandboxes) metrics(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	end := r.URL.Query().Get("end")
	id := sandboxOf(r)
	if _, _, err := h.deadlines.Read(r.Context(), c.Project, id); err != nil {
		return err
	}
	now := h.now()
	if end != "" {
		until, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return berth.Invalid("end", "Invalid 'end': expected Unix seconds.")
		}
		if until < now.Unix() {
			return x.JSON(http.StatusOK, []metric{})
		}
	}
	m, measured, err := h.meter.read(r.Context(), c.Project, id)
	switch {
	case err != nil:
		return err
	case !measured:
		return x.JSON(http.StatusOK, []metric{})
	}
	return x.JSON(http.StatusOK, []metric{m})
}

// A meter reads the use of resources of sandboxes.
type meter struct {
	containers *container.Service
	cpu        float64 // cores of a container
	now        func() time.Time
}

// read returns the present use of resources of a sandbox, and reports whether it could be measured: one that
// starts, such as from a snapshot, uses nothing yet.
func (h *meter) read(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (_ metric, measured bool, _ error) {
	s, err := h.containers.Stats(ctx, p, id)
	if err != nil {
		return metric{}, false, err
	}
	now := h.now()
	m := metric{At: now.UTC().Format(time.RFC3339), AtUnix: now.Unix(), CPUCount: max(1, int(h.cpu)),
		MemUsed: s.Memory.Bytes, MemTotal: s.Memory.LimitBytes,
		DiskUsed: s.Disk.Bytes, DiskTotal: s.Disk.LimitBytes}
	m.CPUUsedPct = 100 * s.CPUSeconds / float64(max(1, s.UptimeSeconds))
	return m, m.MemUsed > 0, nil
}

// maxMetrics is how many sandboxes one request of allMetrics may name.
const maxMetrics = 100

// allMetrics serves GET /sandboxes/metrics: the present use of resources of several sandboxes. It
// leaves out those that do not run.
func (h *sandboxes) allMetrics(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	found := map[string]metric{}
	var ids []string
	for _, text := range r.URL.Query()["sandbox_ids"] {
		ids = append(ids, strings.Split(text, ",")...)
	}
	if len(ids) > maxMetrics {
		return berth.Invalid("sandbox_ids", "Invalid 'sandbox_ids': expected at most %d, but got %d.", maxMetrics,
			len(ids))
	}
	for _, name := range ids {
		rec, _, err := h.deadlines.Read(r.Context(), c.Project, idOf(name))
		if berth.ErrorCode(err) == berth.CodeNotFound || err == nil && rec.Paused {
			continue
		}
		if err != nil {
			return err
		}
		m, measured, err := h.meter.read(r.Context(), c.Project, idOf(name))
		if berth.ErrorCode(err) == berth.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		if measured {
			found[name] = m
		}
	}
	return x.JSON(http.StatusOK, struct {
		Sandboxes map[string]metric `json:"sandboxes"`
	}{found})
}
