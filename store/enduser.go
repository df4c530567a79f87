package store

import (
	"encoding/json"

	"github.com/berth-run/berth"
)

// EndUserLink returns the object that says that an object of a project, such as a response, belongs to an end user. It
// is stored with that object, so that neither is there without the other.
func EndUserLink(user berth.EndUserID, id string, createdAt int64) *Object {
	return &Object{ObjectKey: ObjectKey{Kind: KindEndUserLink, Parent: string(user), ID: id}, CreatedAt: createdAt,
		Body: json.RawMessage("{}")}
}
