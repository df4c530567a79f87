package api

import (
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/rule"
)

// containers serves containers, their files, logs and ports.
type containers struct {
	service *container.Service
	files   *files.Service
	log     *slog.Logger
	users   *endUsers
}

// maxEnvironment is how many environment variables a request for a container may set.
const maxEnvironment = 100

// environment allows environment variables, by name.
func environment(at string, v any) error {
	variables, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	if len(variables) > maxEnvironment {
		return rule.Errorf("object_above_max_properties", at,
			"Invalid '%s': too many variables. Expected at most %d, but got %d.", at, maxEnvironment, len(variables))
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if name == "" || len(name) > 256 || strings.ContainsAny(name, "=\x00") {
			return rule.Errorf("invalid_value", at, "Invalid '%s': %q is not the name of an environment variable.", at,
				rule.Clip(name))
		}
		field := rule.Join(at, name)
		if err := rule.Text(0, 32<<10)(field, variables[name]); err != nil {
			return err
		}
		if strings.ContainsRune(variables[name].(string), 0) {
			return rule.Errorf("invalid_value", field, "Invalid '%s': the value contains a NUL byte.", field)
		}
	}
	return nil
}

// containerBody checks the body of POST /v1/containers.
var containerBody = rule.Object(rule.Fields{
	"name": rule.Text(1, 256),
	"expires_after": rule.Object(rule.Fields{
		"anchor": rule.OneOf("last_active_at"), "minutes": rule.Integer(1, math.MaxInt32),
	}, "anchor", "minutes"),
	"file_ids":       rule.List(rule.Text(1, 256), 50),
	"memory_limit":   rule.MemoryLimit,
	"network_policy": rule.ByType(rule.NetworkPolicies),
	"skills":         rule.Skills,
	"berth": rule.ContainerSource(rule.Fields{"unique_name": rule.Boolean, "env": environment,
		"user": rule.Text(1, enduser.MaxName)}),
}, "name")

// create serves POST /v1/containers.
func (h *containers) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name          string               `json:"name"`
		ExpiresAfter  *berth.ExpiresAfter  `json:"expires_after"`
		FileIDs       []berth.FileID       `json:"file_ids"`
		MemoryLimit   string               `json:"memory_limit"`
		NetworkPolicy *berth.NetworkPolicy `json:"network_policy"`
		Skills        []berth.SkillParam   `json:"skills"`

		Berth berth.ContainerExtension `json:"berth"`
	}
	if err := x.Decode(r, containerBody, &body); err != nil {
		return err
	}
	req := container.CreateRequest{Name: body.Name, ExpiresAfter: body.ExpiresAfter, FileIDs: body.FileIDs,
		MemoryLimit: body.MemoryLimit, NetworkPolicy: body.NetworkPolicy, Skills: body.Skills,
		Source: body.Berth.ContainerSource, UniqueName: body.Berth.UniqueName}
	for _, name := range slices.Sorted(maps.Keys(body.Berth.Env)) {
		req.Env = append(req.Env, name+"="+body.Berth.Env[name])
	}
	if body.Berth.User != "" {
		var err error
		if c, err = h.users.service.Named(r.Context(), c, body.Berth.User); err != nil {
			return err
		}
	}
	container, err := h.service.Create(r.Context(), c, req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// list serves GET /v1/containers.
func (h *containers) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	name := q.Text("name")
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.service.List(r.Context(), c.Project, name, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(c *berth.Container) string { return string(c.ID) }))
}

// get serves GET /v1/containers/{container}.
func (h *containers) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	get := h.service.Get
	if !q.Boolean("touch", true) {
		get = h.service.Look
	}
	if err := q.End(); err != nil {
		return err
	}
	return exchange.Get(x, r, c, get, containerID(r))
}

// delete serves DELETE /v1/containers/{container}.
func (h *containers) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.service.Delete, containerID(r), "container.deleted")
}

// audit serves GET /v1/containers/{container}/audit: the audit entries of the container,
// the oldest first. They remain after its deletion.
func (h *containers) audit(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	entries, checkpoint, err := h.service.History(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, containerAudit{"list", entries, checkpoint})
}

// containerAudit is the part of the audit record that concerns a container.
type containerAudit struct {
	Object     string `json:"object"`     // "list"
	Data       any    `json:"data"`       // entries
	Checkpoint string `json:"checkpoint"` // the record's last signed checkpoint
}

// containerID returns the container id of the request's path.
func containerID(r *http.Request) berth.ContainerID {
	return berth.ContainerID(r.PathValue("container"))
}
