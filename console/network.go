package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A networkPage is the page of what a container may reach, what it has reached, and by whom.
type networkPage struct {
	Tab      tab
	Changes  []flow     // of the policy, the newest first
	Hosts    []*hostRow // the latest first
	Policy   []string   // hosts that the container may reach
	Requests []string   // to which alone the hosts that they name are restricted
	Denied   bool       // nothing may be reached
	Open     bool       // every host may be reached
	Group    *berth.GroupNetwork
	Missing  bool // the record was cut

	Who map[string]string // names of keys, by their ids
}

// A hostRow is the connections to a host.
type hostRow struct {
	Host     string
	Allowed  int64
	Refused  int64
	Sent     int64
	Received int64
	Reason   string // of the latest refusal
	Last     time.Time
	By       networkCall // the command that ran at the latest connection
}

// A networkCall is a command that has connected.
type networkCall struct {
	Command  string // "" if none ran
	Response berth.ResponseID
}

// show serves GET /console/containers/{container}/network.
func (p *networkPage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = networkPage{Tab: tab{c, "network", v.formToken()}}
	p.Policy, p.Requests = c.NetworkPolicy.AllowedDomains, c.NetworkPolicy.AllowedRequests
	p.Denied = c.NetworkPolicy.Type == "disabled"
	p.Open = !p.Denied && len(p.Policy) == 0
	p.Group = c.Berth.Network
	facts, err := readFacts(v, c.ID)
	if err != nil {
		return err
	}
	if p.Denied { // it may have been another policy before
		var audit list[flow]
		if err := v.get(pathTo("/v1/containers", c.ID)+"/audit", &audit); err != nil {
			return err
		}
		facts.Flows = audit.Data
	}
	p.sum(facts)
	p.Who = map[string]string{}
	for _, f := range p.Changes {
		p.Who[f.Key] = v.nameOf(f.Key)
	}
	return v.show(http.StatusOK, "network", "Network", p)
}

// sum sums the connections by host.
func (p *networkPage) sum(facts *containerFacts) {
	byHost := map[string]*hostRow{}
	for _, f := range facts.Flows {
		switch f.Action {
		case "network.changed":
			p.Changes = append(p.Changes, f)
		case "egress.more":
			p.Missing = true
		case "egress.ended", "egress.refused":
			row := byHost[f.Host]
			if row == nil {
				row = &hostRow{Host: f.Host}
				byHost[f.Host] = row
				p.Hosts = append(p.Hosts, row)
			}
			row.add(f, facts.Log)
		}
	}
	slices.SortFunc(p.Hosts, func(a, b *hostRow) int { return b.Last.Compare(a.Last) })
	p.Hosts = p.Hosts[:min(len(p.Hosts), maxFlows)]
	slices.SortFunc(p.Changes, func(a, b flow) int { return cmp.Compare(b.Seq, a.Seq) })
}

// add adds a connection to those of the host.
func (r *hostRow) add(f flow, log []berth.ContainerLog) {
	if f.Action == "egress.refused" {
		r.Refused++
	} else {
		r.Allowed++
	}
	r.Sent, r.Received = r.Sent+f.Sent, r.Received+f.Received
	if f.Time.Before(r.Last) {
		return
	}
	r.Last = f.Time
	if f.Reason != "" && f.Action == "egress.refused" {
		r.Reason = f.Reason
	}
	if by := callAt(log, f.Time.UnixMilli()-f.Milliseconds); by.Command != "" {
		r.By = by
	}
}

// callAt returns the command that ran at a time. If several ran, it is the one that started last.
func callAt(log []berth.ContainerLog, at int64) (by networkCall) {
	started := int64(0)
	for _, l := range log {
		if l.StartedAtMS > 0 && l.StartedAtMS <= at && at <= l.StartedAtMS+l.DurationMS && l.StartedAtMS > started {
			started, by = l.StartedAtMS, networkCall{line(strings.TrimSpace(l.Command)), l.ResponseID}
		}
	}
	return by
}
