package berth

import (
	"path"
	"slices"
)

// A Project is the tenant: it owns all that its keys make. One that was never
// created by name is active and has the server's limits.
type Project struct {
	ID         ProjectID     `json:"id"`
	Object     string        `json:"object"` // "organization.project"
	Name       string        `json:"name"`
	CreatedAt  int64         `json:"created_at"`
	ArchivedAt *int64        `json:"archived_at"`         // null while it is active
	ErasedAt   *int64        `json:"erased_at,omitempty"` // since when an archived one has nothing; Berth's
	Status     ProjectStatus `json:"status"`
	Limits     Limits        `json:"limits"` // its own; Berth's
}

// A ProjectStatus is the state of a project. The keys of an archived one are
// refused, and it does not come back.
type ProjectStatus string

const (
	ProjectActive   ProjectStatus = "active"
	ProjectArchived ProjectStatus = "archived"
)

// Limits are what a project may use. One that is nil is somebody else's to say; one
// that is negative is no limit.
type Limits struct {
	RequestsPerMinute *int64 `json:"requests_per_minute,omitempty"` // for responses; and as many others that change something
	TokensPerMinute   *int64 `json:"tokens_per_minute,omitempty"`   // of models, in and out
	Responses         *int64 `json:"responses,omitempty"`           // in progress at once
	Containers        *int64 `json:"containers,omitempty"`          // running at once
	ContainerMinutes  *int64 `json:"container_minutes,omitempty"`   // of all containers in a day, UTC
	StorageBytes      *int64 `json:"storage_bytes,omitempty"`       // of all that is stored: responses, conversations, files, snapshots, volumes …
	Snapshots         *int64 `json:"snapshots,omitempty"`           // kept at once

	// Templates are the names, or patterns of them as in path.Match, and the digests
	// of templates that containers may ask for, beside the server's default one. An
	// empty list is none, nil does not say.
	Templates []string `json:"templates,omitzero"`
}

// AllowTemplate reports whether containers may ask for a template that has these
// names and digests. Limits that do not say allow all.
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

// Or returns the limits, with those of others where there are none.
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
	if l.Templates == nil {
		l.Templates = others.Templates
	}
	return l
}
