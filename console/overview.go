package console

import (
	"errors"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
)

// An overviewPage is the overview of the project of the key, and of the server if the
// API shows its state to the key.
type overviewPage struct {
	Project *projectOverview    // nil for an admin key
	Server  *berth.ServerStatus // nil for keys of other projects than the default one
	Spent   []spending          // this month
}

// A projectOverview is the present state of a project.
type projectOverview struct {
	Running, Failed []*summary // responses, the newest first; Failed of the latest ones
	Containers      int        // that run
	More            bool       // there are more containers than were read
}

// latestRead is the number of responses among which the overview shows those that failed.
const latestRead = "100"

// Read is latestRead.
func (projectOverview) Read() string { return latestRead }

// A spending is this month's cost of a project or a key.
type spending struct {
	ProjectID berth.ProjectID `json:"project_id"`
	APIKeyID  *string         `json:"api_key_id"`
	Used      berth.Cost      `json:"used"`
	Limit     *berth.Cost     `json:"limit"`
	Warning   *string         `json:"warning"`
}

// show serves GET /console/overview.
func (p *overviewPage) show(v *visit) error {
	var err error
	if !v.admin() {
		if p.Project, err = readProject(v); err != nil {
			return err
		}
	}
	var status berth.ServerStatus
	switch err := v.get("/v1/organization/status", &status); {
	case err == nil:
		p.Server = &status
	case !refused(err):
		return err
	}
	var spending list[spending]
	if err := v.get("/v1/organization/spend?limit=100", &spending); err != nil {
		return err
	}
	p.Spent = spending.Data
	return v.show(http.StatusOK, "overview", "Overview", p)
}

// disks joins the parts of the state that are on one volume, which are those with the same figures.
func disks(parts []berth.DiskStatus) []berth.DiskStatus {
	var joined []berth.DiskStatus
	for _, part := range parts {
		i := slices.IndexFunc(joined, func(d berth.DiskStatus) bool {
			return d.Bytes == part.Bytes && d.FreeBytes == part.FreeBytes && d.Low == part.Low
		})
		if i < 0 {
			joined = append(joined, part)
		} else {
			joined[i].Area += ", " + part.Area
		}
	}
	return joined
}

// refused reports whether the API refuses something to the key of the visit, or does not serve it.
func refused(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && (f.Status == http.StatusNotFound || f.Status == http.StatusForbidden)
}

func readProject(v *visit) (*projectOverview, error) {
	var p projectOverview
	// A filter by failed would open every response until it has found some. Responses that run are few, and
	// the store finds them by an index.
	var running, latest list[*summary]
	if err := v.get("/v1/responses?order=desc&limit=10&status=in_progress", &running); err != nil {
		return nil, err
	}
	if err := v.get("/v1/responses?order=desc&limit="+latestRead, &latest); err != nil {
		return nil, err
	}
	p.Running = running.Data
	for _, s := range latest.Data {
		if s.Status == berth.StatusFailed {
			p.Failed = append(p.Failed, s)
		}
	}
	var containers list[berth.Container]
	if err := v.get("/v1/containers?order=desc&limit=100", &containers); err != nil {
		return nil, err
	}
	for _, c := range containers.Data {
		if c.Status == berth.ContainerRunning {
			p.Containers++
		}
	}
	p.More = containers.HasMore
	return &p, nil
}
