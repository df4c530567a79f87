package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

const (
	queueAlert   = 10                 // turns that wait for an upstream
	failureAlert = 5                  // percent of responses that fail
	failuresMin  = 20                 // responses, below which a share of failures says little
	missAlert    = 20                 // percent of containers that a pool did not have
	spendAlert   = 90                 // percent of a limit
	backupAlert  = 7 * 24 * time.Hour // without a backup
)

// A healthPage is the page of what an operator must know: alerts, keys of upstreams, the last backup.
type healthPage struct {
	Server berth.ServerStatus
	Alerts []alert // those that fire first
	Firing int
	Keys   []upstreamKey
	Backup backupView
}

// An alert is a condition of docs/observe/alerts.yaml, or one like it, as far as the server knows its state.
type alert struct {
	Fires bool
	Name  string // of the rule for Prometheus; "" for those that have none
	What  string
	Step  string // the first step
}

// An upstreamKey is a key of an upstream, by the name of its environment variable.
type upstreamKey struct {
	Upstream string
	berth.UpstreamKey
}

// State returns the state of the key, for a badge.
func (k upstreamKey) State() string {
	if k.RestSeconds > 0 {
		return "resting"
	}
	return "enabled"
}

// A backupView is the last backup, and the commands of an operator.
type backupView struct {
	Last *berth.BackupStatus // nil for none
	Old  bool
}

// show serves GET /console/health.
func (p *healthPage) show(v *visit) error {
	if err := v.get("/v1/organization/status", &p.Server); err != nil {
		return err
	}
	var spent list[spending]
	if err := v.get("/v1/organization/spend?limit=100", &spent); err != nil && !refused(err) {
		return err
	}
	for i := range spent.Data {
		s := &spent.Data[i]
		if s.Project = v.projectName(string(s.ProjectID)); s.APIKeyID != nil {
			s.Key = v.nameOf(*s.APIKeyID)
		}
	}
	p.fill(spent.Data, time.Now())
	return v.show(http.StatusOK, "health", "Health", p)
}

// fill fills the page from the state of the server and this month's costs.
func (p *healthPage) fill(spent []spending, now time.Time) {
	s := &p.Server
	for _, problem := range s.Problems {
		p.Alerts = append(p.Alerts, alert{true, "", problem, "berth doctor, and the end of the server's log"})
	}
	for _, d := range disks(s.Disk) {
		p.Alerts = append(p.Alerts, alert{d.Low, "BerthDiskLow",
			fmt.Sprintf("%s free of %s: volume of %s", size(d.FreeBytes), size(d.Bytes), d.Area),
			"delete snapshots and templates, or enlarge the volume"})
	}
	for _, u := range s.Upstreams {
		p.Alerts = append(p.Alerts, alert{u.Circuit == "open", "BerthUpstreamOpen",
			fmt.Sprintf("Upstream %s: %s, %s of %s turns failed", u.Name, badgeOf(u.Circuit).Label, count64(u.Failed),
				count64(u.Turns)), "check its key and its limits"})
		if u.Waiting > 0 {
			p.Alerts = append(p.Alerts, alert{u.Waiting > queueAlert, "BerthUpstreamQueue",
				fmt.Sprintf("Upstream %s: %d turns wait for its limits", u.Name, u.Waiting), "raise its limits, or add a key"})
		}
		for _, k := range u.Keys {
			p.Keys = append(p.Keys, upstreamKey{u.Name, k})
		}
	}
	r := s.Responses
	ended := r.Completed + r.Incomplete + r.Failed + r.Cancelled
	fails := ended >= failuresMin && percentOf(r.Failed, ended) > failureAlert
	p.Alerts = append(p.Alerts, alert{fails, "BerthResponsesFail",
		fmt.Sprintf("%s of %s responses failed since the start of the server", count64(r.Failed), count64(ended)),
		"the log's lines with level=ERROR; most often an upstream"})
	for _, pool := range s.Pools {
		asked := pool.Hits + pool.Misses
		misses := asked >= failuresMin && percentOf(pool.Misses, asked) > missAlert
		of := cmp.Or(short(pool.Template), "the default template")
		p.Alerts = append(p.Alerts, alert{misses, "BerthPoolTooSmall",
			fmt.Sprintf("%s of %s containers did not start from the pool of %s (%s)", count64(pool.Misses),
				count64(asked), of, pool.MemoryLimit), "a larger containers.pool"})
	}
	for _, s := range spent {
		if s.Limit == nil {
			continue
		}
		of := s.Project
		if s.APIKeyID != nil {
			of += ", key " + s.Key
		}
		p.Alerts = append(p.Alerts, alert{s.Percent() >= spendAlert, "",
			fmt.Sprintf("%s of %s spent this month: %s", money(&s.Used), money(s.Limit), of),
			"raise the limit, or look at its usage"})
	}
	p.Backup = backupView{Last: s.LastBackup}
	p.Backup.Old = p.Backup.Last == nil || now.Sub(time.Unix(p.Backup.Last.At, 0)) > backupAlert
	what := "Backup: none is known"
	if p.Backup.Last != nil {
		what = "Backup: the last one was " + ago(now.Sub(time.Unix(p.Backup.Last.At, 0)))
	}
	p.Alerts = append(p.Alerts, alert{p.Backup.Old, "", what, "berth backup DIRECTORY"})
	slices.SortStableFunc(p.Alerts, func(a, b alert) int {
		return cmp.Compare(map[bool]int{false: 1}[a.Fires], map[bool]int{false: 1}[b.Fires])
	})
	for _, a := range p.Alerts {
		if a.Fires {
			p.Firing++
		}
	}
}
