package e2b

import (
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
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
func (d *Door) metrics(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	end := r.URL.Query().Get("end")
	id := sandboxOf(r)
	if _, _, err := d.read(r.Context(), c.Project, id); err != nil {
		return err
	}
	now := d.Now()
	if end != "" {
		until, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return berth.Invalid("end", "Invalid 'end': expected Unix seconds.")
		}
		if until < now.Unix() {
			return x.JSON(http.StatusOK, []metric{})
		}
	}
	s, err := d.Containers.Stats(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	m := metric{At: now.UTC().Format(time.RFC3339), AtUnix: now.Unix(), CPUCount: max(1, int(d.CPU)), MemUsed: s.Memory.Bytes, MemTotal: s.Memory.LimitBytes,
		DiskUsed: s.Disk.Bytes, DiskTotal: s.Disk.LimitBytes}
	if s.UptimeSeconds > 0 {
		m.CPUUsedPct = 100 * s.CPUSeconds / float64(s.UptimeSeconds)
	}
	return x.JSON(http.StatusOK, []metric{m})
}
