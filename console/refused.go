package console

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-run/berth"
)

// maxRefusedOf is the number of containers of which a page of refused connections reads the commands.
const maxRefusedOf = 20

// A refusedPage is the page of what the network refused to all containers of a project, or of the server.
type refusedPage struct {
	Rows []*refusedRow // the latest first
	Next string        // path of the next page; "" at the end
}

// A refusedRow is a connection that was refused, or several of a container to one host.
type refusedRow struct {
	Host      string
	Port      int
	Reason    string
	Count     int
	Last      time.Time
	Project   string // its name, for an admin key
	Container berth.ContainerID
	Title     string      // of the container; "" if it is not known
	By        networkCall // the command that ran then
}

// A refusedEntry is an entry of the audit record.
type refusedEntry struct {
	flow
	Project   string            `json:"project"`
	Container berth.ContainerID `json:"container"`
}

// show serves GET /console/refused.
func (p *refusedPage) show(v *visit) error {
	path, query := "/v1/refused_connections", url.Values{"limit": {"100"}}
	if v.admin() {
		path = "/v1/organization/audit"
		query.Set("action", "egress.refused")
	}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[refusedEntry]
	if err := v.get(path+"?"+query.Encode(), &found); err != nil {
		return err
	}
	if found.HasMore {
		p.Next = "/console/refused?" + url.Values{"after": {found.LastID}}.Encode()
	}
	titles := map[berth.ContainerID]containerRow{}
	for _, r := range found.Data {
		if n := len(p.Rows); n > 0 && p.Rows[n-1].same(r) {
			p.Rows[n-1].Count++
			continue
		}
		row := &refusedRow{Host: r.Host, Port: r.Port, Reason: r.Reason, Count: 1, Last: r.Time, Container: r.Container}
		p.Rows = append(p.Rows, row)
		if v.admin() {
			row.Project = v.projectName(r.Project)
			continue // an admin key sees no containers
		}
		c, known := titles[r.Container]
		if !known && len(titles) < maxRefusedOf {
			var err error
			if c, err = askedOf(v, r.Container); err != nil {
				return err
			}
			titles[r.Container] = c
		}
		row.Title, row.By = c.Title, callAt(c.log, r.Time.UnixMilli())
	}
	return v.show(http.StatusOK, "refused", "Refused connections", p)
}

// same reports whether an entry is about the container and the host of the row, for the same reason.
func (r *refusedRow) same(e refusedEntry) bool {
	return r.Container == e.Container && r.Host == e.Host && r.Port == e.Port && r.Reason == e.Reason
}

// askedOf returns a container with its title and commands: none if it was deleted.
func askedOf(v *visit, id berth.ContainerID) (row containerRow, err error) {
	c, err := lookAt(v, id)
	if err == nil {
		if row, err = containerRowOf(v, c); err == nil {
			row.log, _, err = readLog(v, id)
		}
	}
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusNotFound {
		return containerRow{}, nil
	}
	return row, err
}
