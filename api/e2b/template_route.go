package e2b

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/rule"
)

// templateBody checks the body of POST /v3/templates and /v2/templates.
var templateBody = rule.Object(rule.Fields{
	"name": rule.Text(1, 256), "alias": rule.Text(1, 256), "tags": rule.List(rule.Text(1, 128), build.MaxTags),
	"teamID":   rule.Text(0, 256),
	"cpuCount": rule.Integer(1, 1024), "memoryMB": rule.Integer(128, 1<<20), "minFreeDiskMb": rule.Integer(0, 1<<20),
})

// A templateAnswer is a template with a build that was requested.
type templateAnswer struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Tags       []string `json:"tags"`
	Aliases    []string `json:"aliases"`
}

// templates serves templates and their builds.
type templates struct {
	builds    *build.Service
	files     *files.Service // of COPY steps
	tokens    *tokens
	maxUpload int64   // bytes of the files of a step; 0 means the limit of files
	cpu       float64 // cores of a container
	disk      int64   // bytes that a container may write
	now       func() time.Time
}

// create serves POST /v3/templates: it announces a build of a template with a name, which
// may be new.
func (h *templates) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"`
		Tags     []string `json:"tags"`
		CPUCount int      `json:"cpuCount"`
		MemoryMB int64    `json:"memoryMB"`
	}
	if err := x.Decode(r, templateBody, &body); err != nil {
		return err
	}
	if body.Name == "" {
		body.Name = body.Alias
	}
	name, tag, err := build.SplitRef("name", body.Name)
	if err != nil {
		return err
	}
	if name == "" {
		return berth.Invalid("name", "Missing required parameter: 'name'.")
	}
	if build.IsDefault(name) {
		return berth.Invalid("name", "Invalid 'name': '%s' is the server's default template. Choose another name.",
			name)
	}
	tags := slices.Clone(body.Tags)
	for _, one := range tags {
		if !build.IsTag(one) {
			return berth.Invalid("tags", "Invalid 'tags': '%s' is not a tag.", rule.Clip(one))
		}
	}
	if tag != build.DefaultTag || len(tags) == 0 {
		tags = append([]string{tag}, tags...)
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	size, err := memoryLimit(body.MemoryMB)
	if err != nil {
		return err
	}
	t, err := h.builds.Named(r.Context(), c.Project, name)
	if err != nil {
		return err
	}
	now := h.now().UnixMilli()
	if t == nil {
		t = &build.Template{ID: build.NewID(), Names: []string{name}, CreatedAt: now}
	}
	if t.Sandbox != "" {
		return berth.Errorf(berth.CodeConflict, "'%s' is the name of a snapshot.", name)
	}
	b := build.Build{ID: build.NewBuildID(), Status: build.StatusWaiting, CreatedAt: now, CPUCount: body.CPUCount,
		MemoryMB: body.MemoryMB, MemorySize: size}
	if t, err = h.builds.Add(r.Context(), c.Project, t, b, tags); err != nil {
		return err
	}
	return x.JSON(http.StatusAccepted, templateAnswer{t.ID, b.ID, false, names(t), tags, names(t)})
}

// memoryLimit returns the memory limit of containers that have at least these megabytes.
func memoryLimit(mb int64) (string, error) {
	best := ""
	for name, bytes := range berth.MemoryLimits {
		if bytes>>20 >= mb && (best == "" || bytes < berth.MemoryLimits[best]) {
			best = name
		}
	}
	if best == "" {
		return "", berth.Invalid("memoryMB", "Invalid 'memoryMB': this server's containers have less than %d MB.", mb)
	}
	return best, nil
}

// A templateAlias is the template that a name selects.
type templateAlias struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

// getPart serves GET /templates/{template}/{part}: the tags of a template, or with
// "aliases" for the template the template with a name.
func (h *templates) getPart(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	ref, part := r.PathValue("template"), r.PathValue("part")
	if ref == "aliases" && build.IsDefault(part) {
		return x.JSON(http.StatusOK, templateAlias{part, true})
	}
	if ref == "aliases" {
		t, err := h.builds.Template(r.Context(), c.Project, part)
		if err != nil {
			return err
		}
		return x.JSON(http.StatusOK, templateAlias{t.ID, false})
	}
	if part != "tags" {
		return berth.Errorf(berth.CodeNotFound, "Unknown request URL: GET %s.", r.URL.Path)
	}
	t, err := h.builds.Template(r.Context(), c.Project, ref)
	if err != nil {
		return err
	}
	type tag struct {
		Tag       string `json:"tag"`
		BuildID   string `json:"buildID"`
		CreatedAt string `json:"createdAt"`
	}
	tags := []tag{}
	for name, id := range t.Tags {
		b, err := h.builds.Build(r.Context(), c.Project, t.ID, id)
		if berth.ErrorCode(err) == berth.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		tags = append(tags, tag{name, id, rfc3339(b.CreatedAt)})
	}
	slices.SortFunc(tags, func(a, b tag) int { return strings.Compare(a.Tag, b.Tag) })
	return x.JSON(http.StatusOK, tags)
}

// assignTags serves POST /templates/tags: it gives tags to the build that a name with a tag selects.
func (h *templates) assignTags(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"target": rule.Text(1, 256),
		"tags": rule.AtLeastOne(rule.List(rule.Text(1, 128), build.MaxTags))}, "target", "tags"), &body); err != nil {
		return err
	}
	for _, tag := range body.Tags {
		if !build.IsTag(tag) {
			return berth.Invalid("tags", "Invalid 'tags': '%s' is not a tag.", rule.Clip(tag))
		}
	}
	t, b, err := h.builds.Resolve(r.Context(), c.Project, body.Target)
	if err == nil && t == nil {
		err = build.NotFound(body.Target)
	}
	if err != nil {
		return err
	}
	_, err = h.builds.Update(r.Context(), c.Project, t.ID, func(t *build.Template) error {
		t.Tag(b.ID, body.Tags)
		if len(t.Tags) > build.MaxTags {
			return berth.Invalid("tags", "A template has at most %d tags.", build.MaxTags)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusCreated, struct {
		BuildID string   `json:"buildID"`
		Tags    []string `json:"tags"`
	}{b.ID, body.Tags})
}

// removeTags serves DELETE /templates/tags.
func (h *templates) removeTags(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"name": rule.Text(1, 256),
		"tags": rule.AtLeastOne(rule.List(rule.Text(1, 128), build.MaxTags))}, "name", "tags"), &body); err != nil {
		return err
	}
	if slices.Contains(body.Tags, build.DefaultTag) {
		return berth.Invalid("tags", "The tag '%s' cannot be removed.", build.DefaultTag)
	}
	t, err := h.builds.Template(r.Context(), c.Project, body.Name)
	if err != nil {
		return err
	}
	_, err = h.builds.Update(r.Context(), c.Project, t.ID, func(t *build.Template) error {
		for _, tag := range body.Tags {
			if _, ok := t.Tags[tag]; !ok {
				return berth.Errorf(berth.CodeNotFound, "Template '%s' has no tag '%s'.", body.Name, rule.Clip(tag))
			}
			delete(t.Tags, tag)
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// A templateDetail is a template as lists show it.
type templateDetail struct {
	TemplateID    string   `json:"templateID"`
	BuildID       string   `json:"buildID"`
	CPUCount      int      `json:"cpuCount"`
	MemoryMB      int64    `json:"memoryMB"`
	DiskSizeMB    int64    `json:"diskSizeMB"`
	Public        bool     `json:"public"`
	Aliases       []string `json:"aliases"`
	Names         []string `json:"names"`
	CreatedAt     string   `json:"createdAt"`
	UpdatedAt     string   `json:"updatedAt"`
	CreatedBy     any      `json:"createdBy"` // null: keys have no users
	LastSpawnedAt *string  `json:"lastSpawnedAt"`
	SpawnCount    int64    `json:"spawnCount"`
	BuildCount    int      `json:"buildCount"`
	EnvdVersion   string   `json:"envdVersion"`
	BuildStatus   string   `json:"buildStatus"`
}

// describe returns a template with its newest build.
func (h *templates) describe(ctx context.Context, p berth.ProjectID, t *build.Template) (templateDetail, error) {
	out := templateDetail{TemplateID: t.ID, CPUCount: max(1, int(h.cpu)), DiskSizeMB: h.disk >> 20, Aliases: names(t),
		Names: names(t), CreatedAt: rfc3339(t.CreatedAt), UpdatedAt: rfc3339(t.UpdatedAt),
		SpawnCount: t.Spawned, BuildCount: len(t.Builds), EnvdVersion: envdVersion, BuildStatus: build.StatusWaiting}
	if t.SpawnedAt != 0 {
		out.LastSpawnedAt = new(rfc3339(t.SpawnedAt))
	}
	if len(t.Builds) > 0 {
		b, err := h.builds.Build(ctx, p, t.ID, t.Builds[len(t.Builds)-1])
		if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return out, err
		}
		if b != nil {
			out.BuildID, out.BuildStatus, out.MemoryMB = b.ID, b.Status, b.MemoryMB
		}
	}
	return out, nil
}

// describeBase returns the server's default template, which all projects may use.
func (h *templates) describeBase() templateDetail {
	return templateDetail{TemplateID: "base", BuildID: uuid.Nil.String(), CPUCount: max(1, int(h.cpu)),
		DiskSizeMB: h.disk >> 20, Public: true, Aliases: []string{"base"}, Names: []string{"base"},
		CreatedAt: rfc3339(0), UpdatedAt: rfc3339(0), EnvdVersion: envdVersion, BuildStatus: build.StatusReady}
}

// list serves GET /v2/templates and GET /templates: the templates that the project built.
func (h *templates) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	all, err := h.builds.Templates(r.Context(), c.Project)
	if err != nil {
		return err
	}
	found := []templateDetail{h.describeBase()}
	for _, t := range all {
		if t.Sandbox != "" {
			continue
		}
		one, err := h.describe(r.Context(), c.Project, t)
		if err != nil {
			return err
		}
		found = append(found, one)
	}
	return x.JSON(http.StatusOK, found)
}

// get serves GET /templates/{template}: a template with its builds.
func (h *templates) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	type built struct {
		BuildID     string  `json:"buildID"`
		Status      string  `json:"status"`
		CreatedAt   string  `json:"createdAt"`
		UpdatedAt   string  `json:"updatedAt"`
		FinishedAt  *string `json:"finishedAt,omitempty"`
		CPUCount    int     `json:"cpuCount"`
		MemoryMB    int64   `json:"memoryMB"`
		EnvdVersion string  `json:"envdVersion"`
		Berth       struct {
			Snapshot     berth.SnapshotID `json:"snapshot_id,omitempty"` // with which its containers start
			StartCommand string           `json:"start_command,omitempty"`
			ReadyCommand string           `json:"ready_command,omitempty"`

			// What commands of sandboxes have, unless a request has another.
			User string            `json:"user,omitempty"`
			Dir  string            `json:"working_directory,omitempty"`
			Env  map[string]string `json:"environment,omitempty"`
		} `json:"berth"`
	}
	type answer struct {
		templateDetail
		Builds []built `json:"builds"`
	}
	if build.IsDefault(r.PathValue("template")) {
		return x.JSON(http.StatusOK, answer{h.describeBase(), []built{}})
	}
	t, err := h.builds.Template(r.Context(), c.Project, r.PathValue("template"))
	if err != nil {
		return err
	}
	one, err := h.describe(r.Context(), c.Project, t)
	if err != nil {
		return err
	}
	builds := []built{}
	for _, id := range slices.Backward(t.Builds) {
		b, err := h.builds.Build(r.Context(), c.Project, t.ID, id)
		if berth.ErrorCode(err) == berth.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		of := built{BuildID: b.ID, Status: b.Status, CreatedAt: rfc3339(b.CreatedAt),
			UpdatedAt: rfc3339(max(b.CreatedAt, b.EndedAt)), CPUCount: one.CPUCount, MemoryMB: b.MemoryMB,
			EnvdVersion: envdVersion}
		of.Berth.Snapshot, of.Berth.User, of.Berth.Dir = b.Snapshot, b.User, b.Dir
		for _, pair := range b.Env {
			name, value, _ := strings.Cut(pair, "=")
			if of.Berth.Env == nil {
				of.Berth.Env = map[string]string{}
			}
			of.Berth.Env[name] = value
		}
		if b.Start != nil {
			of.Berth.StartCommand, of.Berth.ReadyCommand = b.Start.Command, b.Start.Ready
		}
		if b.EndedAt != 0 {
			of.FinishedAt = new(rfc3339(b.EndedAt))
		}
		builds = append(builds, of)
	}
	return x.JSON(http.StatusOK, answer{one, builds})
}

// patch serves PATCH /v2/templates/{template}. Templates belong to one project.
func (h *templates) patch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Public bool `json:"public"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"public": rule.Boolean}), &body); err != nil {
		return err
	}
	t, err := h.builds.Template(r.Context(), c.Project, r.PathValue("template"))
	if err != nil {
		return err
	}
	if body.Public {
		return berth.Invalid("public",
			"A template belongs to its project. Make a template of the server with 'berth image build' for all projects.")
	}
	return x.JSON(http.StatusOK, struct {
		Names []string `json:"names"`
	}{names(t)})
}

// delete serves DELETE /templates/{template}: a template or a snapshot, with its builds.
func (h *templates) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	t, err := h.builds.Template(r.Context(), c.Project, r.PathValue("template"))
	if err != nil {
		return err
	}
	if err := h.builds.Delete(r.Context(), c.Project, t); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// maxStatusLogs is how many lines of a log one answer has.
const maxStatusLogs = 100

// buildStatus serves GET /templates/{template}/builds/{build}/status.
func (h *templates) buildStatus(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.buildOf(r, c)
	if err != nil {
		return err
	}
	offset, err := wholeNumber(r, "logsOffset", 0, 1<<31)
	if err != nil {
		return err
	}
	limit, err := wholeNumber(r, "limit", maxStatusLogs, maxStatusLogs)
	if err != nil {
		return err
	}
	logs := b.Logs[min(offset, len(b.Logs)):]
	logs = append([]build.LogEntry{}, logs[:min(limit, len(logs))]...)
	lines := make([]string, len(logs))
	for i, e := range logs {
		lines[i] = e.Message
	}
	return x.JSON(http.StatusOK, struct {
		TemplateID string           `json:"templateID"`
		BuildID    string           `json:"buildID"`
		Status     string           `json:"status"`
		Logs       []string         `json:"logs"`
		Entries    []build.LogEntry `json:"logEntries"`
		Reason     *build.Reason    `json:"reason,omitempty"`
	}{b.Template, b.ID, b.Status, lines, logs, b.Reason})
}

// buildLogs serves GET /templates/{template}/builds/{build}/logs.
func (h *templates) buildLogs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.buildOf(r, c)
	if err != nil {
		return err
	}
	limit, err := wholeNumber(r, "limit", maxStatusLogs, 1000)
	if err != nil {
		return err
	}
	logs := append([]build.LogEntry{}, b.Logs...)
	if r.URL.Query().Get("direction") == "backward" {
		slices.Reverse(logs)
	}
	return x.JSON(http.StatusOK, struct {
		Logs []build.LogEntry `json:"logs"`
	}{logs[:min(limit, len(logs))]})
}

// buildOf returns the build that a path names.
func (h *templates) buildOf(r *http.Request, c berth.Caller) (*build.Build, error) {
	if uuid.Validate(r.PathValue("build")) != nil {
		return nil, berth.Invalid("", "Invalid build ID: '%s'.", rule.Clip(r.PathValue("build")))
	}
	t, err := h.builds.Template(r.Context(), c.Project, r.PathValue("template"))
	if err != nil {
		return nil, err
	}
	return h.builds.Build(r.Context(), c.Project, t.ID, r.PathValue("build"))
}

// wholeNumber returns a parameter of the query from 0 to most.
func wholeNumber(r *http.Request, name string, otherwise, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, berth.Invalid(name, "Invalid '%s': '%s'. Expected an integer from 0 to %d.", name, rule.Clip(text),
			most)
	}
	return n, nil
}
