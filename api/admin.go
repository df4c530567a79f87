package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/project"
)

// admin serves the administration of projects and keys, for admin keys.
type admin struct{ service *project.Service }

const maxLife = 365 * 24 * time.Hour // of a key, as at OpenAI

var (
	keyLimitsRule      = rule.Object(rule.Fields{"cost_per_month": costRule})
	lifeRule           = rule.Integer(1, int64(maxLife/time.Second))
	createAdminKeyBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "expires_in_seconds": lifeRule,
		"note": noteRule, "owner": ownerRule, "role": roleRule(berth.OrganizationRoles), "scope": scopeRule}, "name")
	createKeyBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "expires_in_seconds": lifeRule,
		"note": noteRule, "owner": ownerRule, "role": roleRule(berth.ProjectRoles), "scope": scopeRule,
		"limits": keyLimitsRule}, "name")
	noteRule  = rule.Text(0, 1024)
	ownerRule = rule.Text(1, 256)
	scopeRule = rule.Object(rule.Fields{"routes": rule.List(rule.Text(1, 256), 100),
		"tools": rule.List(rule.Text(1, 64), 50)})
	updateKeyBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "note": noteRule,
		"owner": rule.Text(0, 256), "expires_in_seconds": lifeRule, "role": roleRule(berth.ProjectRoles),
		"scope": scopeRule, "limits": keyLimitsRule})
	updateAdminKeyBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "note": noteRule,
		"owner": rule.Text(0, 256), "expires_in_seconds": lifeRule, "role": roleRule(berth.OrganizationRoles),
		"scope": scopeRule})
	limitRule  = rule.Integer(-1, 1<<60)
	costRule   = rule.Decimal(-1, 1e9)
	limitsRule = rule.Object(rule.Fields{"requests_per_minute": limitRule, "tokens_per_minute": limitRule,
		"responses": limitRule, "containers": limitRule,
		"container_minutes": limitRule, "storage_bytes": limitRule, "snapshots": limitRule,
		"cost_per_month": costRule, "templates": rule.List(rule.Text(1, 256), 100),
		"shell_environment": rule.OneOf(string(berth.DefaultContainer), string(berth.DefaultLocal))})
	projectFields     = rule.Fields{"name": rule.Text(1, 256), "limits": limitsRule}
	createProjectBody = rule.Object(projectFields, "name")
	updateProjectBody = rule.Object(projectFields)
)

type createKeyRequest struct {
	Name             string          `json:"name"`
	ExpiresInSeconds int64           `json:"expires_in_seconds"` // absent: it does not expire
	Note             string          `json:"note"`
	Owner            string          `json:"owner"` // id or address of the person who answers for the key
	Role             berth.Role      `json:"role"`  // absent: all that a key of the project may do
	Scope            berth.KeyScope  `json:"scope"`
	Limits           berth.KeyLimits `json:"limits"`
}

// roleRule accepts roles.
func roleRule(roles []berth.Role) rule.Rule {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return rule.OneOf(names...)
}

// checkScope refuses a scope with a route that no route of the API is like.
func checkScope(s berth.KeyScope) error {
	for i, route := range s.Routes {
		like := berth.KeyScope{Routes: []string{route}}.Permits
		if !slices.ContainsFunc(slices.Collect(maps.Keys(permissions)), like) {
			return berth.Invalid(fmt.Sprintf("scope.routes[%d]", i),
				"Unknown route: '%s'. Expected one as in the documentation, such as 'POST /v1/responses', or a start with '*'.",
				rule.Clip(route))
		}
	}
	return nil
}

// An updateAdminKeyRequest changes an admin key. What is absent stays.
type updateAdminKeyRequest struct {
	Name             *string         `json:"name"`
	ExpiresInSeconds *int64          `json:"expires_in_seconds"` // from now on
	Note             *string         `json:"note"`
	Owner            *string         `json:"owner"` // id or address of a person; "" for nobody
	Role             *berth.Role     `json:"role"`
	Scope            *berth.KeyScope `json:"scope"` // replaces the key's scope
}

// An updateKeyRequest changes a key of a project. What is absent stays.
type updateKeyRequest struct {
	updateAdminKeyRequest
	Limits *berth.KeyLimits `json:"limits"` // replaces the key's limits
}

type projectRequest struct {
	Name   string        `json:"name"`
	Limits *berth.Limits `json:"limits"` // replaces the project's own limits
}

// An adminKey is an admin key on the wire.
type adminKey struct {
	ID            berth.KeyID `json:"id"`
	Object        string      `json:"object"` // "organization.admin_api_key"
	Name          string      `json:"name"`
	RedactedValue string      `json:"redacted_value"`
	CreatedAt     int64       `json:"created_at"`
	ExpiresAt     *int64      `json:"expires_at"`   // null: it does not expire
	LastUsedAt    *int64      `json:"last_used_at"` // a few minutes late; null: never
	Owner         keyOwner    `json:"owner"`
	keyTerms
	Value string `json:"value,omitempty"` // the key, in the answer to its creation only
}

// keyTerms are on what terms a key was given out. They are not in OpenAI's objects.
type keyTerms struct {
	Note    string         `json:"note"`
	OwnerID string         `json:"owner_id,omitempty"` // of the person who answers for the key
	Role    berth.Role     `json:"role"`               // empty: all that a key of the project may do
	Scope   berth.KeyScope `json:"scope"`
}

func termsOf(k *berth.Key) keyTerms { return keyTerms{k.Note, k.Owner, k.Role, k.Scope} }

// A keyOwner is the operator, who owns all admin keys.
type keyOwner struct {
	Type      string `json:"type"`   // "user"
	Object    string `json:"object"` // "organization.user"
	ID        string `json:"id"`
	Name      string `json:"name"`
	CreatedAt int64  `json:"created_at"`
	Role      string `json:"role"` // "owner"
}

// A projectKey is a key of a project on the wire.
type projectKey struct {
	ID                 berth.KeyID     `json:"id"`
	Object             string          `json:"object"` // "organization.project.api_key"
	Name               string          `json:"name"`
	RedactedValue      string          `json:"redacted_value"`
	CreatedAt          int64           `json:"created_at"`
	ExpiresAt          *int64          `json:"expires_at"`           // null: it does not expire; not in OpenAI's object
	LastUsedAt         *int64          `json:"last_used_at"`         // a few minutes late; null: never
	OwnerProjectAccess string          `json:"owner_project_access"` // "active"
	Owner              projectKeyOwner `json:"owner"`
	Limits             berth.KeyLimits `json:"limits"` // not in OpenAI's object
	keyTerms
	Value string `json:"value,omitempty"` // the key, in the answer to its creation only
}

// A projectKeyOwner is a service account: keys do not belong to persons.
type projectKeyOwner struct {
	Type           string         `json:"type"` // "service_account"
	ServiceAccount serviceAccount `json:"service_account"`
}

type serviceAccount struct {
	ID        string `json:"id"` // the project's
	Name      string `json:"name"`
	CreatedAt int64  `json:"created_at"`
	Role      string `json:"role"` // "member"
}

func redacted(k *berth.Key) string { return berth.KeyPrefix + "..." + k.Tail }

// timeOrNull returns nil for no time.
func timeOrNull(unix int64) *int64 {
	if unix == 0 {
		return nil
	}
	return &unix
}

func adminKeyOf(k *berth.Key) *adminKey {
	return &adminKey{ID: k.ID, Object: "organization.admin_api_key", Name: k.Name, RedactedValue: redacted(k),
		CreatedAt: k.CreatedAt, ExpiresAt: timeOrNull(k.ExpiresAt), LastUsedAt: timeOrNull(k.LastUsedAt),
		keyTerms: termsOf(k),
		Owner:    keyOwner{"user", "organization.user", "user_operator", "operator", k.CreatedAt, "owner"}}
}

func projectKeyOf(k *berth.Key) *projectKey {
	return &projectKey{ID: k.ID, Object: "organization.project.api_key", Name: k.Name, RedactedValue: redacted(k),
		CreatedAt: k.CreatedAt, ExpiresAt: timeOrNull(k.ExpiresAt), LastUsedAt: timeOrNull(k.LastUsedAt),
		keyTerms:           termsOf(k),
		OwnerProjectAccess: "active", Limits: k.Limits, Owner: projectKeyOwner{"service_account",
			serviceAccount{string(k.Project), string(k.Project), k.CreatedAt, "member"}}}
}

// create creates a key of a project.
func (h *admin) create(x *exchange.Exchange, r *http.Request, c berth.Caller, p berth.ProjectID,
	accepted rule.Rule) (*berth.Key, string, error) {
	var body createKeyRequest
	if err := x.Decode(r, accepted, &body); err != nil {
		return nil, "", err
	}
	if err := checkScope(body.Scope); err != nil {
		return nil, "", err
	}
	k, secret, err := h.service.By(c).CreateKey(r.Context(), p, project.KeyRequest{Name: body.Name, Note: body.Note,
		Owner: body.Owner, Lifetime: time.Duration(body.ExpiresInSeconds) * time.Second, Role: body.Role,
		Scope: body.Scope, Limits: body.Limits})
	if errors.Is(err, project.ErrArchived) {
		err = berth.Errorf(berth.CodeInvalid, "Project '%s' is archived.", p)
	}
	return k, secret, err
}

// update changes the key of the path if it belongs to a project, and returns it.
func (h *admin) update(x *exchange.Exchange, r *http.Request, c berth.Caller, p berth.ProjectID,
	accepted rule.Rule) (*berth.Key, error) {
	var body updateKeyRequest
	if err := x.Decode(r, accepted, &body); err != nil {
		return nil, err
	}
	k, err := h.find(r, p)
	if err != nil {
		return nil, err
	}
	if body.Scope != nil {
		if err := checkScope(*body.Scope); err != nil {
			return nil, err
		}
	}
	change := project.KeyChange{Name: body.Name, Note: body.Note, Owner: body.Owner, Role: body.Role, Scope: body.Scope,
		Limits: body.Limits}
	if body.ExpiresInSeconds != nil {
		life := time.Duration(*body.ExpiresInSeconds) * time.Second
		change.Lifetime = &life
	}
	k, err = h.service.By(c).UpdateKey(r.Context(), k.ID, change)
	if errors.Is(err, berth.ErrNotFound) {
		err = berth.NotFound("API key", rule.Clip(r.PathValue("key")))
	}
	return k, err
}

// list returns a page of the keys of a project, the oldest first by default.
func (h *admin) list(r *http.Request, p berth.ProjectID) ([]*berth.Key, bool, error) {
	q := exchange.NewQuery(r)
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return nil, false, err
	}
	keys, err := h.service.ListKeys(r.Context())
	if err != nil {
		return nil, false, err
	}
	keys = slices.DeleteFunc(keys, func(k *berth.Key) bool { return k.Project != p })
	return exchange.PageOf(keys, page, func(k *berth.Key) string { return string(k.ID) })
}

// find returns the key of the path if it belongs to a project.
func (h *admin) find(r *http.Request, p berth.ProjectID) (*berth.Key, error) {
	keys, err := h.service.ListKeys(r.Context())
	if err != nil {
		return nil, err
	}
	id := berth.KeyID(r.PathValue("key"))
	i := slices.IndexFunc(keys, func(k *berth.Key) bool { return k.ID == id && k.Project == p })
	if i < 0 {
		return nil, berth.NotFound("API key", rule.Clip(string(id)))
	}
	return keys[i], nil
}

// revoke deletes the key of the path if it belongs to a project. The last key of all stays: a
// server that is started without a key serves every program of its machine.
func (h *admin) revoke(r *http.Request, c berth.Caller, p berth.ProjectID) (berth.KeyID, error) {
	k, err := h.find(r, p)
	if err != nil {
		return "", err
	}
	_, err = h.service.By(c).RevokeKeys(r.Context(), []berth.KeyID{k.ID}, false)
	switch {
	case errors.Is(err, project.ErrLastKey):
		return "", berth.Errorf(berth.CodeConflict,
			"API key '%s' is the last key of this server. Create another key first.", k.ID)
	case errors.Is(err, berth.ErrNotFound):
		return "", berth.NotFound("API key", k.ID)
	}
	return k.ID, err
}

// createAdminKey serves POST /v1/organization/admin_api_keys.
func (h *admin) createAdminKey(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	k, secret, err := h.create(x, r, c, berth.AdminProject, createAdminKeyBody)
	if err != nil {
		return err
	}
	answer := adminKeyOf(k)
	answer.Value = secret
	return x.JSON(http.StatusOK, answer)
}

// listAdminKeys serves GET /v1/organization/admin_api_keys.
func (h *admin) listAdminKeys(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	keys, more, err := h.list(r, berth.AdminProject)
	if err != nil {
		return err
	}
	data := make([]*adminKey, len(keys))
	for i, k := range keys {
		data[i] = adminKeyOf(k)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(k *adminKey) string { return string(k.ID) }))
}

// getAdminKey serves GET /v1/organization/admin_api_keys/{key}.
func (h *admin) getAdminKey(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	k, err := h.find(r, berth.AdminProject)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, adminKeyOf(k))
}

// deleteAdminKey serves DELETE /v1/organization/admin_api_keys/{key}.
func (h *admin) deleteAdminKey(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id, err := h.revoke(r, c, berth.AdminProject)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "organization.admin_api_key.deleted"))
}

// updateAdminKey serves POST /v1/organization/admin_api_keys/{key}.
func (h *admin) updateAdminKey(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	k, err := h.update(x, r, c, berth.AdminProject, updateAdminKeyBody)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, adminKeyOf(k))
}
