// Package scim serves SCIM 2.0 (RFC 7643, RFC 7644): a provider of identities creates, changes and deactivates the
// users and groups that it has assigned to this server.
package scim

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/people"
)

const (
	root = "/scim/v2"
	kind = "application/scim+json"

	maxBody    = 4 << 20
	maxResults = 1000 // of a page
	pageSize   = 100  // by default
)

// Schemas of messages and resources.
const (
	schemaUser  = "urn:ietf:params:scim:schemas:core:2.0:User"
	schemaGroup = "urn:ietf:params:scim:schemas:core:2.0:Group"
	schemaList  = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	schemaPatch = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
	schemaError = "urn:ietf:params:scim:api:messages:2.0:Error"
)

// A Door serves SCIM. It is safe for concurrent use.
type Door struct{ records *people.Provisioning }

// New returns a door.
func New(records *people.Provisioning) *Door { return &Door{records} }

// Routes returns the routes.
func (d *Door) Routes() []exchange.Route {
	if d == nil {
		return nil
	}
	on := func(pattern string, h exchange.Handler) exchange.Route {
		rt := exchange.On(pattern, h, exchange.StoresNothing, exchange.StoresLittle, exchange.ReadsQuery,
			exchange.NoCORS)
		rt.WriteError = writeError
		rt.Fail = fail
		return rt
	}
	return []exchange.Route{
		on("GET "+root+"/ServiceProviderConfig", serveConfig),
		on("GET "+root+"/ResourceTypes", serveResourceTypes),
		on("GET "+root+"/ResourceTypes/{type}", serveResourceType),
		on("GET "+root+"/Schemas", serveSchemas),
		on("GET "+root+"/Schemas/{schema}", serveSchema),
		on("GET "+root+"/Users", d.listUsers),
		on("POST "+root+"/Users", d.createUser),
		on("GET "+root+"/Users/{user}", d.getUser),
		on("PUT "+root+"/Users/{user}", d.replaceUser),
		on("PATCH "+root+"/Users/{user}", d.patchUser),
		on("DELETE "+root+"/Users/{user}", d.deleteUser),
		on("GET "+root+"/Groups", d.listGroups),
		on("POST "+root+"/Groups", d.createGroup),
		on("GET "+root+"/Groups/{group}", d.getGroup),
		on("PUT "+root+"/Groups/{group}", d.replaceGroup),
		on("PATCH "+root+"/Groups/{group}", d.patchGroup),
		on("DELETE "+root+"/Groups/{group}", d.deleteGroup),
	}
}

// A refusal is an error for the client, with the type of RFC 7644, section 3.12.
type refusal struct {
	status       int // of HTTP
	typ, message string
}

func (r *refusal) Error() string { return r.message }

func invalid(typ, message string) error { return &refusal{http.StatusBadRequest, typ, message} }

// An errorAnswer is an error in SCIM's form.
type errorAnswer struct {
	Schemas []string `json:"schemas"`
	Status  string   `json:"status"`
	Type    string   `json:"scimType,omitempty"`
	Detail  string   `json:"detail"`
}

func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	answer := errorAnswer{[]string{schemaError}, strconv.Itoa(status), "", e.Message}
	_ = write(x, status, answer) // the client may be gone
}

// fail answers a request that failed.
func fail(x *exchange.Exchange, r *http.Request, err error) {
	refused, ok := errors.AsType[*refusal](err)
	switch {
	case ok:
	case errors.Is(err, berth.ErrNotFound):
		refused = &refusal{http.StatusNotFound, "", "There is no such resource."}
	case errors.Is(err, people.ErrTaken):
		refused = &refusal{http.StatusConflict, "uniqueness", "Another user has this userName."}
	case errors.Is(err, people.ErrMember):
		refused = &refusal{http.StatusBadRequest, "invalidValue", "A member of the group does not exist."}
	default:
		x.Fail(r, err)
		return
	}
	_ = write(x, refused.status, errorAnswer{[]string{schemaError}, strconv.Itoa(refused.status), refused.typ,
		refused.message}) // the client may be gone
}

// write answers with a resource or a message.
func write(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, err = w.Write(raw)
	return err
}

// decode reads the body of a request.
func decode(x *exchange.Exchange, r *http.Request, into any) error {
	raw, err := x.ReadBody(r, maxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		if refused, ok := errors.AsType[*refusal](err); ok {
			return refused
		}
		return invalid("invalidSyntax", "The body is not JSON of a resource or of a PatchOp.")
	}
	return nil
}

// A meta describes a resource.
type meta struct {
	ResourceType string `json:"resourceType"`
	Created      string `json:"created,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	Location     string `json:"location"`
}

func metaOf(r *http.Request, resource, path string, created, modified int64) meta {
	at := func(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
	return meta{resource, at(created), at(modified), exchange.Origin(r) + root + path}
}

// A list is a page of resources.
type list struct {
	Schemas      []string `json:"schemas"`
	TotalResults int      `json:"totalResults"`
	StartIndex   int      `json:"startIndex"`
	ItemsPerPage int      `json:"itemsPerPage"`
	Resources    []any    `json:"Resources"`
}

// page returns the page of all that a request asks for.
func page[T any](r *http.Request, all []T, show func(T) any) (*list, error) {
	number := func(name string, otherwise int) (int, error) {
		text := r.URL.Query().Get(name)
		if text == "" {
			return otherwise, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, invalid("invalidValue", name+" is not a number.")
		}
		return n, nil
	}
	start, err := number("startIndex", 1)
	if err != nil {
		return nil, err
	}
	count, err := number("count", pageSize)
	if err != nil {
		return nil, err
	}
	start, count = max(1, start), max(0, min(count, maxResults))
	from := min(start-1, len(all))
	part := all[from:min(from+count, len(all))]
	l := &list{Schemas: []string{schemaList}, TotalResults: len(all), StartIndex: start, ItemsPerPage: len(part),
		Resources: make([]any, 0, len(part))}
	for _, one := range part {
		l.Resources = append(l.Resources, show(one))
	}
	return l, nil
}
