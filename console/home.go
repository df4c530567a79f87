package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

const (
	homeRead    = "100"          // responses of which the page shows those that wait or have failed
	homeFailed  = 10             // failures that are shown
	homeRecent  = 8              // chains that are shown
	homeDays    = 14             // of the trend of costs
	failureSpan = 24 * time.Hour // of which failures are shown
)

// A homePage answers what waits for the user, what runs, what has failed and what it costs.
type homePage struct {
	Project *projectHome        // nil for an admin key
	Server  *berth.ServerStatus // nil for keys of other projects than the default one
	Spent   []spending          // this month
	Month   *spending           // of the project of the key; nil if unknown
	Trend   *columnChart        // nil without usage
	Form    formToken
}

// A projectHome is the present state of a project.
type projectHome struct {
	Waiting    []*waitingRun
	Calls      []waitingCall // of clients that cannot ask their own user
	Running    []*runningRun
	Failed     []*failedRun // of the last 24 hours, among the latest responses
	Recent     []chain
	Containers int  // that run
	More       bool // there are more containers than were read
	Today      int  // responses since midnight UTC, among the latest ones
	MoreToday  bool
}

// WaitingCount returns how many responses and calls wait for approval.
func (p *projectHome) WaitingCount() int { return len(p.Waiting) + len(p.Calls) }

// A waitingRun is a response that waits for approval.
type waitingRun struct {
	*summary
	Title string
	Form  formToken
	Back  string // where its form leads to: "home", or "" for the next response
	Calls []approval
}

// A runningRun is a response that has not ended.
type runningRun struct {
	*summary
	Title string
	Step  string // the latest step, in a line
	Steps int
}

// A failedRun is a response that has failed.
type failedRun struct {
	*summary
	Title string
}

// Reason returns why the response has failed.
func (f failedRun) Reason() string {
	switch {
	case f.Error != nil:
		return cmp.Or(f.Error.Message, f.Error.Code)
	case f.IncompleteDetails != nil:
		return f.IncompleteDetails.Reason
	}
	return ""
}

// A spending is this month's cost of a project or a key.
type spending struct {
	ProjectID berth.ProjectID `json:"project_id"`
	APIKeyID  *string         `json:"api_key_id"`
	Used      berth.Cost      `json:"used"`
	Limit     *berth.Cost     `json:"limit"`
	Warning   *string         `json:"warning"`

	Project string `json:"-"` // the project's name
	Key     string `json:"-"` // the key's name
}

// Percent returns the used part of the limit.
func (s spending) Percent() int64 {
	if s.Limit == nil {
		return 0
	}
	return percentOf(int64(s.Used.Value), int64(s.Limit.Value))
}

// show serves GET /console/.
func (p *homePage) show(v *visit) error {
	p.Form = v.formToken()
	var err error
	if !v.admin() {
		if p.Project, err = readHome(v); err != nil {
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
	if err := p.readSpending(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "home", "Home", p)
}

// readSpending reads the cost of this month, and of the last days.
func (p *homePage) readSpending(v *visit) error {
	var spent list[spending]
	if err := v.get("/v1/organization/spend?limit=100", &spent); err != nil {
		return err
	}
	p.Spent = spent.Data
	if !v.admin() {
		if i := slices.IndexFunc(p.Spent, func(s spending) bool { return s.APIKeyID == nil }); i >= 0 {
			p.Month = &p.Spent[i]
		}
	} else {
		names := projectNames(v)
		for i := range p.Spent {
			p.Spent[i].Project = names[p.Spent[i].ProjectID]
		}
	}
	for i := range p.Spent {
		if s := &p.Spent[i]; s.APIKeyID != nil {
			s.Key = v.nameOf(*s.APIKeyID)
		}
		if s := &p.Spent[i]; s.Project == "" {
			s.Project = v.projectName(string(s.ProjectID))
		}
	}
	u := usagePage{Days: homeDays, Period: "day", By: "project_id"}
	if p.Month != nil {
		u.Limit = p.Month.Limit
	}
	if err := u.read(v); err != nil && !refused(err) {
		return err
	}
	if len(u.Groups) > 0 {
		p.Trend = u.Chart
	}
	return nil
}

// projectNames returns the names of projects, for an admin key.
func projectNames(v *visit) map[berth.ProjectID]string {
	var found list[berth.Project]
	names := map[berth.ProjectID]string{}
	if v.get("/v1/organization/projects?limit=100&include_archived=true", &found) == nil { // ids are shown without
		for _, p := range found.Data {
			names[p.ID] = p.Name
		}
	}
	return names
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

// readHome reads the state of the visit's project.
func readHome(v *visit) (*projectHome, error) {
	var latest list[*summary]
	if err := v.get("/v1/responses?order=desc&limit="+homeRead, &latest); err != nil {
		return nil, err
	}
	p := &projectHome{}
	if err := p.readWaiting(v, latest.Data); err != nil {
		return nil, err
	}
	if err := p.readRunning(v); err != nil {
		return nil, err
	}
	now := time.Now()
	midnight := now.UTC().Truncate(24 * time.Hour).Unix()
	p.MoreToday = latest.HasMore
	for _, s := range latest.Data {
		if s.CreatedAt >= midnight {
			p.Today++
		} else {
			p.MoreToday = false
		}
		bad := s.Status == berth.StatusFailed || s.Status == berth.StatusIncomplete
		if !bad || time.Unix(s.CreatedAt, 0).Before(now.Add(-failureSpan)) || len(p.Failed) >= homeFailed {
			continue
		}
		title, err := readRunTitle(v, s.ID)
		if err != nil {
			return nil, err
		}
		p.Failed = append(p.Failed, &failedRun{s, title})
	}
	chains := chainsOf(latest.Data)
	p.Recent = chains[:min(len(chains), homeRecent)]
	if err := addChainTitles(v, p.Recent, map[berth.ResponseID]string{}); err != nil {
		return nil, err
	}
	markWaiting(p.Recent, p.summaries())
	return p, p.readContainers(v)
}

// summaries returns the responses that wait.
func (p *projectHome) summaries() (all []*summary) {
	for _, w := range p.Waiting {
		all = append(all, w.summary)
	}
	return all
}

func (p *projectHome) readContainers(v *visit) error {
	var containers list[berth.Container]
	if err := v.get("/v1/containers?order=desc&limit=100", &containers); err != nil {
		return err
	}
	for _, c := range containers.Data {
		if c.Status == berth.ContainerRunning {
			p.Containers++
		}
	}
	p.More = containers.HasMore
	return nil
}

// readWaiting reads the calls that wait for approval.
func (p *projectHome) readWaiting(v *visit, latest []*summary) error {
	waiting, err := waitingOf(v, latest)
	if err != nil {
		return err
	}
	if p.Calls, err = readCalls(v); err != nil {
		return err
	}
	n := len(waiting) + len(p.Calls)
	v.waiting = &n
	for _, s := range waiting {
		var r berth.Response
		err := v.get("/v1/responses/"+url.PathEscape(string(s.ID)), &r)
		if refused(err) {
			continue // deleted since
		}
		if err != nil {
			return err
		}
		title, err := readRunTitle(v, s.ID)
		if err != nil {
			return err
		}
		p.Waiting = append(p.Waiting, &waitingRun{s, title, v.formToken(), "home", approvalsOf(&r)})
	}
	return nil
}

// readRunning reads the responses that run, with their latest step.
func (p *projectHome) readRunning(v *visit) error {
	// Responses that run are few, and the store finds them by an index.
	var running list[*summary]
	if err := v.get("/v1/responses?order=desc&limit=10&status=in_progress", &running); err != nil {
		return err
	}
	for _, s := range running.Data {
		run := &runningRun{summary: s}
		var r berth.Response
		err := v.get("/v1/responses/"+url.PathEscape(string(s.ID)), &r)
		if refused(err) {
			continue // deleted since
		}
		if err != nil {
			return err
		}
		steps := stepsOf([]*turnView{{Response: &r, Output: entriesOf(r.Output)}})
		if run.Steps = len(steps); run.Steps > 0 {
			run.Step = steps[len(steps)-1].Label
		}
		if run.Title, err = readRunTitle(v, s.ID); err != nil {
			return err
		}
		p.Running = append(p.Running, run)
	}
	return nil
}
