package console

import (
	"net/url"
	"strings"
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
	names, err := adminKeyNames(v)
	if err != nil {
		return nil, err
	}
	for id, key := range makers {
		makers[id] = v.nameOf(key, names)
	}
	return makers, nil
}

// adminKeyNames returns the names of the admin keys, by their ids.
func adminKeyNames(v *visit) (map[string]string, error) {
	var found list[keyRow]
	if err := v.get("/v1/organization/admin_api_keys?limit=100", &found); err != nil && !refused(err) {
		return nil, err
	}
	names := map[string]string{}
	for _, k := range found.Data {
		names[k.ID] = k.Name
	}
	return names, nil
}

// nameOf returns what others see of the person or the key with an id of the audit record.
func (v *visit) nameOf(id string, keys map[string]string) string {
	switch {
	case id == "":
		return "command line"
	case strings.HasPrefix(id, personPrefix):
		if name := v.person(id); name != "" {
			return name
		}
	case keys[id] != "":
		return keys[id]
	}
	return short(id)
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
