package e2b

import (
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// An envdMetric is the use of resources as envd reports it.
type envdMetric struct {
	At          int64   `json:"ts"` // Unix seconds
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"` // of one core, the mean since the sandbox was created
	MemTotal    int64   `json:"mem_total"`    // bytes
	MemUsed     int64   `json:"mem_used"`
	MemCache    int64   `json:"mem_cache"`
	MemTotalMiB int64   `json:"mem_total_mib"`
	MemUsedMiB  int64   `json:"mem_used_mib"`
	DiskUsed    int64   `json:"disk_used"` // bytes
	DiskTotal   int64   `json:"disk_total"`
}

// ownPath reports whether this server itself answers a request to envd, and not the guest.
func ownPath(r *http.Request, path string) bool {
	return r.Method == http.MethodGet && (path == "metrics" || path == "envs")
}

// serveOwn serves envd's GET /metrics and GET /envs for a sandbox.
func (d *dataPlane) serveOwn(x *exchange.Exchange, r *http.Request, p berth.ProjectID, id berth.ContainerID,
	path string) error {
	rec, _, err := d.deadlines.Read(r.Context(), p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return gone(nameOf(id))
	}
	if err != nil {
		return err
	}
	if path == "envs" {
		env := map[string]string{}
		for _, pair := range rec.Env {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		return x.JSON(http.StatusOK, env)
	}
	m, _, err := d.meter.read(r.Context(), p, id)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, envdMetric{m.AtUnix, m.CPUCount, m.CPUUsedPct, m.MemTotal, m.MemUsed, m.MemCache,
		m.MemTotal >> 20, m.MemUsed >> 20, m.DiskUsed, m.DiskTotal})
}
