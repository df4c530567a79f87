package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A builtTemplate is a template that the project has built by E2B's API.
type builtTemplate struct {
	ID          string   `json:"templateID"`
	Names       []string `json:"names"`
	Public      bool     `json:"public"` // the server's default template
	CreatedAt   instant  `json:"createdAt"`
	UpdatedAt   instant  `json:"updatedAt"`
	SpawnCount  int64    `json:"spawnCount"`
	BuildStatus string   `json:"buildStatus"`

	Builds []templateBuild `json:"builds"` // the newest first; lists have none
}

// Name returns the first name of the template, or its id.
func (t builtTemplate) Name() string { return nameOr(t.Names, t.ID) }

// State returns the state of the newest build, for a badge.
func (t builtTemplate) State() string { return buildState(t.BuildStatus) }

// A templateBuild is a build of a template.
type templateBuild struct {
	ID        string   `json:"buildID"`
	Status    string   `json:"status"`
	CreatedAt instant  `json:"createdAt"`
	EndedAt   *instant `json:"finishedAt"`
	MemoryMB  int64    `json:"memoryMB"`
	Berth     struct {
		Snapshot berth.SnapshotID `json:"snapshot_id"`
		Start    string           `json:"start_command"`
		Ready    string           `json:"ready_command"`
	} `json:"berth"`

	Tags []string `json:"-"`
}

// State returns the state of the build, for a badge.
func (b templateBuild) State() string { return buildState(b.Status) }

// Took returns how long the build took; "" while it runs.
func (b templateBuild) Took() string {
	if b.EndedAt == nil {
		return ""
	}
	return took((b.EndedAt.Unix() - b.CreatedAt.Unix()) * 1000)
}

// buildState returns the state of a build that E2B's API has another word for.
func buildState(status string) string {
	words := map[string]string{"waiting": "queued", "building": "in_progress", "ready": "completed", "error": "failed"}
	return cmp.Or(words[status], status)
}

// An instant is a time in E2B's API.
type instant struct{ time.Time }

// Unix returns the time in seconds, or 0 for no time.
func (t instant) Unix() int64 { return max(0, t.Time.Unix()) }

// A buildLog is the log of a build.
type buildLog struct {
	Logs []struct {
		Timestamp, Level, Message, Step string
	} `json:"logs"`
}

// A templatePage is the page of a template: of the server, or of the project.
type templatePage struct {
	Server *berth.Template // nil for one of the project
	Built  *builtTemplate  // nil for one of the server
	Build  *templateBuild  // whose log is shown; nil for none
	Log    buildLog
	Cut    bool            // the log has more lines
	Stored *berth.Snapshot // what Build has made; nil for nothing

	Containers []containerRow // that use it, the newest first
	More       bool           // others may use it, among those that were not read
	Form       formToken
	Path       string
}

// Names returns the names of the template.
func (p templatePage) Names() []string {
	if p.Server != nil {
		return p.Server.Names
	}
	return p.Built.Names
}

// ID returns the id of the template.
func (p templatePage) ID() string {
	if p.Server != nil {
		return p.Server.ID
	}
	return p.Built.ID
}

// Title returns the heading of the page.
func (p templatePage) Title() string { return nameOr(p.Names(), short(p.ID())) }

// Running reports whether a build is not at its end.
func (p templatePage) Running() bool {
	return p.Built != nil && slices.ContainsFunc(p.Built.Builds, func(b templateBuild) bool { return b.EndedAt == nil })
}

// Route returns the route that makes a container from the template.
func (p templatePage) Route() string {
	if p.Server != nil {
		return "POST /v1/containers"
	}
	return "POST /v2/sandboxes"
}

// Ready reports whether a container can start from the template.
func (p templatePage) Ready() bool {
	return p.Server != nil ||
		slices.ContainsFunc(p.Built.Builds, func(b templateBuild) bool { return b.Status == "ready" })
}

// nameOr returns the first name, or what stands in its place.
func nameOr(names []string, otherwise string) string {
	if len(names) > 0 {
		return names[0]
	}
	return otherwise
}

const (
	logLines       = "1000" // of the log of a build
	containersRead = 5      // pages of 100 containers, among which those of a template are looked for
	containersKept = 50     // rows of them
)

// show serves GET /console/templates/{template}. The log is that of ?build, or of the newest build.
func (p *templatePage) show(v *visit) error {
	if err := p.find(v); err != nil {
		return err
	}
	if err := p.readLog(v); err != nil {
		return err
	}
	if err := p.readContainers(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "template", p.Title(), p)
}

// find finds the template that the path of the visit names. Those of the server have a digest as id.
func (p *templatePage) find(v *visit) error {
	id := v.r.PathValue("template")
	*p = templatePage{Form: v.formToken(), Path: pathTo("/console/templates", id)}
	if !strings.HasPrefix(id, "sha256:") {
		var built builtTemplate
		err := v.get(pathTo("/templates", id), &built)
		if err == nil && !built.Public {
			p.Built = &built
			return p.readTags(v)
		}
		if err != nil && !refused(err) {
			return err
		}
	}
	p.Server = &berth.Template{}
	return v.get(pathTo("/v1/templates", id), p.Server)
}

// readTags reads the tags of the builds.
func (p *templatePage) readTags(v *visit) error {
	var tags []struct{ Tag, BuildID string }
	if err := v.get(pathTo("/templates", p.Built.ID)+"/tags", &tags); err != nil {
		return err
	}
	for _, t := range tags {
		for i := range p.Built.Builds {
			if b := &p.Built.Builds[i]; b.ID == t.BuildID {
				b.Tags = append(b.Tags, t.Tag)
			}
		}
	}
	return nil
}

// readLog reads the log of a build.
func (p *templatePage) readLog(v *visit) error {
	if p.Built == nil || len(p.Built.Builds) == 0 {
		return nil
	}
	p.Build = &p.Built.Builds[0]
	if asked := v.r.URL.Query().Get("build"); asked != "" {
		n := slices.IndexFunc(p.Built.Builds, func(b templateBuild) bool { return b.ID == asked })
		if n < 0 {
			return &failure{http.StatusNotFound, "The template has no such build."}
		}
		p.Build = &p.Built.Builds[n]
	}
	query := url.Values{"limit": {logLines}, "direction": {"backward"}}
	err := v.get(pathTo("/templates", p.Built.ID)+"/builds/"+url.PathEscape(p.Build.ID)+"/logs?"+query.Encode(), &p.Log)
	if refused(err) { // it was deleted since
		return nil
	}
	if err != nil {
		return err
	}
	slices.Reverse(p.Log.Logs)
	p.Cut = len(p.Log.Logs) == 1000
	if p.Build.Berth.Snapshot == "" {
		return nil
	}
	var stored berth.Snapshot
	if err = v.get(pathTo("/v1/snapshots", p.Build.Berth.Snapshot), &stored); err == nil {
		p.Stored = &stored
	} else if refused(err) {
		err = nil
	}
	return err
}

// uses reports whether a container was created from the template.
func (p *templatePage) uses(c berth.Container) bool {
	if p.Server != nil {
		return c.Berth.Template == p.Server.ID
	}
	return c.Berth.FromSnapshot != "" && slices.ContainsFunc(p.Built.Builds,
		func(b templateBuild) bool { return b.Berth.Snapshot == c.Berth.FromSnapshot })
}

// readContainers reads the containers that use the template.
func (p *templatePage) readContainers(v *visit) error {
	query := url.Values{"limit": {"100"}, "order": {"desc"}}
	for range containersRead {
		var found list[berth.Container]
		if err := v.get("/v1/containers?"+query.Encode(), &found); err != nil {
			return err
		}
		for _, c := range found.Data {
			if !p.uses(c) {
				continue
			}
			if len(p.Containers) == containersKept {
				p.More = true
				return nil
			}
			row, err := containerRowOf(v, c)
			if err != nil {
				return err
			}
			p.Containers = append(p.Containers, row)
		}
		if p.More = found.HasMore; !p.More {
			return nil
		}
		query.Set("after", found.LastID)
	}
	return nil
}

// sandboxSpan is how long a container from a template of the project lives, in seconds. Its page in E2B's API prolongs
// it.
const sandboxSpan = 3600

// create serves POST /console/templates/{template}: it makes a container from the template.
func (p *templatePage) create(v *visit) error {
	if err := p.find(v); err != nil {
		return err
	}
	name := strings.TrimSpace(v.form.fields.Get("name"))
	if p.Server != nil {
		var made berth.Container
		if err := v.post("/v1/containers", map[string]any{"name": cmp.Or(name, p.Title()),
			"berth": berth.ContainerSource{Template: p.Server.ID}}, &made); err != nil {
			return err
		}
		return v.redirect(pathTo("/console/containers", made.ID))
	}
	var made struct {
		ID string `json:"sandboxID"`
	}
	req := map[string]any{"templateID": p.Built.ID, "timeout": sandboxSpan}
	if err := v.post("/v2/sandboxes", req, &made); err != nil {
		return err
	}
	return v.redirect(pathTo("/console/containers", berth.PrefixContainer+made.ID))
}
