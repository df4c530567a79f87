package console

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// makersOf returns who has made keys, by their ids, as the latest entries of the audit record tell. A visitor who may
// not read the record learns nothing.
func makersOf(v *visit, keys []keyRow) (map[string]string, error) {
	const pages = 5 // of entries
	makers, missing := map[string]string{}, map[string]bool{}
	for _, k := range keys {
		missing[k.ID] = true
	}
	query := url.Values{"action": {"key.created"}, "limit": {"100"}}
	for range pages {
		if len(missing) == 0 {
			break
		}
		var found list[auditEntry]
		if err := v.get("/v1/organization/audit?"+query.Encode(), &found); err != nil {
			if refused(err) {
				return makers, nil
			}
			return nil, err
		}
		for _, e := range found.Data {
			if missing[e.Object] {
				delete(missing, e.Object)
				makers[e.Object] = e.Key
			}
		}
		if !found.HasMore {
			break
		}
		query.Set("after", found.LastID)
	}
	for id, key := range makers {
		if makers[id] = v.nameOf(key); key == "" {
			makers[id] = "command line"
		}
	}
	return makers, nil
}

// nameOf returns what others see of the person or the key with an id that the API has shown.
func (v *visit) nameOf(id string) string {
	if strings.HasPrefix(id, personPrefix) {
		return cmp.Or(v.person(id), short(id))
	}
	if v.keys == nil && v.console.Keys != nil {
		v.keys = v.console.Keys(v.r.Context())
	}
	return cmp.Or(v.keys[berth.KeyID(id)], short(id))
}

// personPrefix is the prefix of the ids of persons.
const personPrefix = "user_"

// person returns what others see of the person with an id; "" if it is not known.
func (v *visit) person(id string) string {
	if v.console.People == nil {
		return ""
	}
	return v.console.People(v.r.Context(), id)
}
