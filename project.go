package berth

import (
	"path"
	"slices"
)

// A Project is a tenant: it owns all objects that its keys create. A project that was
// not created explicitly is active and has the server's limits.
type Project struct {
	ID         ProjectID `json:"id"`
	Object     string    `json:"object"` // "organization.project"
	Name       string    `json:"name"`
	CreatedAt  int64     `json:"created_at"`
	ArchivedAt *int64    `json:"archived_at"` // null while it is active
	// when the data of an archived project was erased; not in OpenAI's object
	ErasedAt *int64        `json:"erased_at,omitempty"`
	Status   ProjectStatus `json:"status"`
	Limits   Limits        `json:"limits"` // set for this project; not in OpenAI's object
}

// A ProjectStatus is the state of a project. Archiving is final: the keys of an
// archived project are refused.
type ProjectStatus string

const (
	ProjectActive   ProjectStatus = "active"
	ProjectArchived ProjectStatus = "archived"
)

// Limits are the limits of a project. Nil means inherit from the server's limits;
// negative means no limit.
type Limits struct {
	// that create responses; the same number again for other changes
	RequestsPerMinute *int64 `json:"requests_per_minute,omitempty"`
	TokensPerMinute   *int64 `json:"tokens_per_minute,omitempty"` // of models, in and out
	Responses         *int64 `json:"responses,omitempty"`         // in progress at a time
	Containers        *int64 `json:"containers,omitempty"`        // running at a time
	ContainerMinutes  *int64 `json:"container_minutes,omitempty"` // of all containers in a day, UTC
	// of all stored objects: responses, conversations, files, snapshots, volumes …
	StorageBytes *int64 `json:"storage_bytes,omitempty"`
	Snapshots    *int64 `json:"snapshots,omitempty"` // stored at a time

	// CostPerMonth limits the cost of models in a calendar month (UTC), in the currency of the
	// configured prices. When it is spent, no new response calls a model; running ones continue.
	CostPerMonth *Amount `json:"cost_per_month,omitempty"`

	// Templates are the names (or path.Match patterns of names) and digests of the
	// templates that containers may use besides the server's default template. An
	// empty list allows the default only; nil means inherit.
	Templates []string `json:"templates,omitzero"`

	// ShellEnvironment is where shells without an environment run commands; empty means inherit.
	ShellEnvironment DefaultEnvironment `json:"shell_environment,omitempty"`
}

// A DefaultEnvironment is where the shells of requests run commands that name no environment.
type DefaultEnvironment string

const (
	DefaultContainer DefaultEnvironment = "container" // of the chain, or a new one
	DefaultLocal     DefaultEnvironment = "local"     // the client's machine
)

// AllowTemplate reports whether containers may use the template with the given names
// and digests. If Templates is nil, all are allowed.
func (l Limits) AllowTemplate(names ...string) bool {
	if l.Templates == nil {
		return true
	}
	return slices.ContainsFunc(l.Templates, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			fits, err := path.Match(pattern, name)
			return pattern == "*" || pattern == name || err == nil && fits
		})
	})
}

// Or returns the limits with nil fields taken from others.
func (l Limits) Or(others Limits) Limits {
	for _, f := range []struct{ mine, other **int64 }{
		{&l.RequestsPerMinute, &others.RequestsPerMinute}, {&l.TokensPerMinute, &others.TokensPerMinute},
		{&l.Responses, &others.Responses}, {&l.Containers, &others.Containers},
		{&l.ContainerMinutes, &others.ContainerMinutes}, {&l.StorageBytes, &others.StorageBytes},
		{&l.Snapshots, &others.Snapshots},
	} {
		if *f.mine == nil {
			*f.mine = *f.other
		}
	}
	if l.CostPerMonth == nil {
		l.CostPerMonth = others.CostPerMonth
	}
	if l.Templates == nil {
		l.Templates = others.Templates
	}
	if l.ShellEnvironment == "" {
		l.ShellEnvironment = others.ShellEnvironment
	}
	return l
}
