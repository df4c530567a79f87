package scim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/people"
)

// maxMembers bounds the members of a group.
const maxMembers = 20000

// A group is a Group on the wire.
type group struct {
	Schemas     []string    `json:"schemas"`
	ID          string      `json:"id"`
	ExternalID  string      `json:"externalId,omitempty"`
	DisplayName string      `json:"displayName"`
	Members     []reference `json:"members,omitempty"`
	Meta        meta        `json:"meta"`
}

// A groupRequest creates or replaces a group.
type groupRequest struct {
	Schemas     []string    `json:"schemas"`
	ExternalID  string      `json:"externalId"`
	DisplayName string      `json:"displayName"`
	Members     []reference `json:"members"`
}

func (b *groupRequest) apply(g *people.Group) error {
	g.ExternalID, g.DisplayName, g.Members = b.ExternalID, b.DisplayName, valuesOf(b.Members)
	return checkGroup(g)
}

func valuesOf(members []reference) []string {
	ids := make([]string, 0, len(members))
	for _, m := range members {
		ids = append(ids, m.Value)
	}
	return ids
}

func checkGroup(g *people.Group) error {
	switch {
	case strings.TrimSpace(g.DisplayName) == "":
		return invalid("invalidValue", "displayName is missing.")
	case g.DisplayName == people.Everyone:
		return invalid("invalidValue", "No group can be named *, which means everyone in this server's configuration.")
	case len(g.Members) > maxMembers:
		return invalid("tooMany", "A group has at most 20000 members.")
	}
	return checkTexts(g.DisplayName, g.ExternalID)
}

// showGroup returns a group on the wire. Entra ID asks for groups without their members.
func showGroup(r *http.Request, g *people.Group) *group {
	shown := &group{Schemas: []string{schemaGroup}, ID: g.ID, ExternalID: g.ExternalID, DisplayName: g.DisplayName,
		Meta: metaOf(r, "Group", "/Groups/"+g.ID, g.CreatedAt, g.ModifiedAt)}
	if strings.EqualFold(r.URL.Query().Get("excludedAttributes"), "members") {
		return shown
	}
	for _, id := range g.Members {
		shown.Members = append(shown.Members, reference{id, "", exchange.Origin(r) + root + "/Users/" + id})
	}
	return shown
}

func answerGroup(x *exchange.Exchange, r *http.Request, status int, g *people.Group) error {
	shown := showGroup(r, g)
	x.Header().Set("Location", shown.Meta.Location)
	return write(x, status, shown)
}

// listGroups serves GET /scim/v2/Groups.
func (d *Door) listGroups(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	f, err := filterOf(r, "displayName", "externalId", "id")
	if err != nil {
		return err
	}
	all, err := d.records.Groups(r.Context())
	if err != nil {
		return err
	}
	var found []*people.Group
	for _, g := range all {
		if f == nil || f.attribute == "displayname" && strings.EqualFold(g.DisplayName, f.value) ||
			f.attribute == "externalid" && g.ExternalID == f.value || f.attribute == "id" && g.ID == f.value {
			found = append(found, g)
		}
	}
	l, err := page(r, found, func(g *people.Group) any { return showGroup(r, g) })
	if err != nil {
		return err
	}
	return write(x, http.StatusOK, l)
}

// createGroup serves POST /scim/v2/Groups.
func (d *Door) createGroup(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	var body groupRequest
	if err := decode(x, r, &body); err != nil {
		return err
	}
	var wanted people.Group
	if err := body.apply(&wanted); err != nil {
		return err
	}
	g, err := d.records.CreateGroup(r.Context(), wanted)
	if err != nil {
		return err
	}
	return answerGroup(x, r, http.StatusCreated, g)
}

// getGroup serves GET /scim/v2/Groups/{group}.
func (d *Door) getGroup(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	g, err := d.records.Group(r.Context(), r.PathValue("group"))
	if err != nil {
		return err
	}
	return answerGroup(x, r, http.StatusOK, g)
}

// replaceGroup serves PUT /scim/v2/Groups/{group}.
func (d *Door) replaceGroup(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	var body groupRequest
	if err := decode(x, r, &body); err != nil {
		return err
	}
	g, err := d.records.ChangeGroup(r.Context(), r.PathValue("group"), body.apply)
	if err != nil {
		return err
	}
	return answerGroup(x, r, http.StatusOK, g)
}

// patchGroup serves PATCH /scim/v2/Groups/{group}.
func (d *Door) patchGroup(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	var body patch
	if err := decode(x, r, &body); err != nil {
		return err
	}
	g, err := d.records.ChangeGroup(r.Context(), r.PathValue("group"), func(g *people.Group) error {
		for _, o := range body.Operations {
			if err := o.group(g); err != nil {
				return err
			}
		}
		return checkGroup(g)
	})
	if err != nil {
		return err
	}
	return answerGroup(x, r, http.StatusOK, g)
}

// deleteGroup serves DELETE /scim/v2/Groups/{group}.
func (d *Door) deleteGroup(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	if err := d.records.DeleteGroup(r.Context(), r.PathValue("group")); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// group does an operation on a group. Entra ID removes members by a value, Okta by a path with a filter.
func (o operation) group(g *people.Group) error {
	if found := oneMember.FindStringSubmatch(o.Path); found != nil {
		if !strings.EqualFold(o.Op, "remove") {
			return invalid("invalidPath", "Only remove has a path with a filter.")
		}
		g.Members = slices.DeleteFunc(g.Members, func(m string) bool { return m == found[1] })
		return nil
	}
	if strings.EqualFold(o.Op, "remove") && attributeOf(o.Path) == "members" && len(o.Value) > 0 {
		gone, err := membersOf(o.Value)
		if err != nil {
			return err
		}
		g.Members = slices.DeleteFunc(g.Members, func(m string) bool { return slices.Contains(gone, m) })
		return nil
	}
	return o.each(func(path string, value json.RawMessage) error {
		into := map[string]*string{"displayname": &g.DisplayName, "externalid": &g.ExternalID}[path]
		switch {
		case path == "members":
			members, err := membersOf(value)
			if err != nil {
				return err
			}
			if strings.EqualFold(o.Op, "add") {
				members = append(g.Members, members...)
			}
			g.Members = members
		case into != nil:
			var text string
			if value != nil && json.Unmarshal(value, &text) != nil {
				return invalid("invalidValue", path+" is not a text.")
			}
			*into = text
		case strings.HasPrefix(path, "members"):
			return invalid("invalidPath", "Expected members, or members[value eq \"ID\"] to remove one.")
		}
		return nil
	})
}

// membersOf returns the ids of members: a list, or one.
func membersOf(raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	var members []reference
	if json.Unmarshal(raw, &members) == nil {
		return valuesOf(members), nil
	}
	var one reference
	if json.Unmarshal(raw, &one) != nil || one.Value == "" {
		return nil, invalid("invalidValue", "members is not a list of objects with a value.")
	}
	return []string{one.Value}, nil
}
