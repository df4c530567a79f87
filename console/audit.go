package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// An auditPage is the page of the audit record.
type auditPage struct {
	Entries    []auditEntry
	Checkpoint string
	Next       string // path of the next page; "" at the end
	Form       formToken
	Filter     map[string]string // by field of the query
	Who        map[string]string // names of the keys and people of entries, by their ids
	Projects   map[string]string // names of their projects, by their ids
	Verified   *verification     // nil unless the record was verified just now
}

// An auditEntry is an entry of the record in the API's answers.
type auditEntry struct {
	Seq       int64
	Time      time.Time
	Project   string
	Key       string
	Action    string
	Container string
	Object    string
	Name      string
	Reason    string
	Host      string
	Bytes     int64
	Count     int64
}

// A verification is the result of a verification of the record.
type verification struct {
	Valid    bool
	Problem  string
	First    int64
	Entries  int64
	Segments int
}

// read reads the entries that the query of the visit asks for.
func (p *auditPage) read(v *visit) error {
	*p = auditPage{Form: v.formToken(), Filter: map[string]string{}}
	query := url.Values{}
	for _, name := range []string{"project_id", "container_id", "action", "key_id", "object_id", "from", "to"} {
		if value := strings.TrimSpace(v.r.URL.Query().Get(name)); value != "" {
			query.Set(name, value)
			p.Filter[name] = value
		}
	}
	read := url.Values{"limit": {"50"}}
	for name := range query {
		switch name {
		case "from", "to":
			day, err := time.Parse(time.DateOnly, query.Get(name))
			if err != nil {
				return &failure{http.StatusBadRequest, "A day is written as 2026-01-31."}
			}
			if name == "to" {
				read.Set("end_time", strconv.FormatInt(day.AddDate(0, 0, 1).Unix(), 10))
			} else {
				read.Set("start_time", strconv.FormatInt(day.Unix(), 10))
			}
		default:
			read.Set(name, query.Get(name))
		}
	}
	if after := v.r.URL.Query().Get("after"); after != "" {
		read.Set("after", after)
	}
	var found struct {
		list[auditEntry]
		Checkpoint string
	}
	err := v.get("/v1/organization/audit?"+read.Encode(), &found)
	p.Entries, p.Checkpoint = found.Data, found.Checkpoint
	p.name(v)
	if found.HasMore {
		query.Set("after", found.LastID)
		p.Next = "/console/audit?" + query.Encode()
	}
	return err
}

// name sets the names of those who have done what entries record, and of their projects.
func (p *auditPage) name(v *visit) {
	p.Who, p.Projects = map[string]string{}, map[string]string{}
	for _, e := range p.Entries {
		if e.Key != "" {
			p.Who[e.Key] = v.nameOf(e.Key)
		}
		if strings.HasPrefix(e.Object, keyPrefix) {
			p.Who[e.Object] = v.nameOf(e.Object)
		}
		if e.Project != "" && p.Projects[e.Project] == "" {
			p.Projects[e.Project] = v.projectName(e.Project)
		}
	}
}

// keyPrefix is the prefix of the ids of keys.
const keyPrefix = "key_"

// projectName returns the name of a project that the API has shown.
func (v *visit) projectName(id string) string {
	if v.console.Names == nil {
		return short(id)
	}
	return cmp.Or(v.console.Names(v.r.Context(), berth.ProjectID(id)), short(id))
}

// show serves GET /console/audit: the audit record, the newest entries first.
func (p *auditPage) show(v *visit) error {
	if err := p.read(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "audit", "Audit record", p)
}

// verify serves POST /console/audit.
func (p *auditPage) verify(v *visit) error {
	var result verification
	if err := v.post("/v1/organization/audit/verify", struct{}{}, &result); err != nil {
		return err
	}
	if err := p.read(v); err != nil {
		return err
	}
	p.Verified = &result
	return v.show(http.StatusOK, "audit", "Audit record", p)
}
