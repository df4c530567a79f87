package scim

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/people"
)

// A user is a User on the wire.
type user struct {
	Schemas     []string    `json:"schemas"`
	ID          string      `json:"id"`
	ExternalID  string      `json:"externalId,omitempty"`
	UserName    string      `json:"userName"`
	Name        userName    `json:"name"`
	DisplayName string      `json:"displayName,omitempty"`
	Emails      []email     `json:"emails,omitempty"`
	Active      bool        `json:"active"`
	Groups      []reference `json:"groups"`
	Meta        meta        `json:"meta"`
}

type userName struct {
	Formatted  string `json:"formatted,omitempty"`
	GivenName  string `json:"givenName,omitempty"`
	FamilyName string `json:"familyName,omitempty"`
}

type email struct {
	Value   string `json:"value"`
	Type    string `json:"type"`
	Primary bool   `json:"primary"`
}

// A reference names a resource in another.
type reference struct {
	Value   string `json:"value"`
	Display string `json:"display,omitempty"`
	Ref     string `json:"$ref,omitempty"`
}

// A flag is a boolean, which Entra ID also sends as a text.
type flag bool

// UnmarshalJSON implements json.Unmarshaler.
func (f *flag) UnmarshalJSON(raw []byte) error {
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true":
		*f = true
	case "false":
		*f = false
	default:
		return invalid("invalidValue", "active is not a boolean.")
	}
	return nil
}

// A userRequest creates or replaces a user. Other attributes have no effect.
type userRequest struct {
	Schemas     []string `json:"schemas"`
	ExternalID  string   `json:"externalId"`
	UserName    string   `json:"userName"`
	Name        userName `json:"name"`
	DisplayName string   `json:"displayName"`
	Emails      []struct {
		Value   string `json:"value"`
		Primary flag   `json:"primary"`
	} `json:"emails"`
	Active *flag `json:"active"`
}

// apply replaces what a client may set. Whether the user is active stays if the request does not say it: a provider
// that leaves it out means neither.
func (b *userRequest) apply(u *people.User) error {
	u.UserName, u.ExternalID, u.DisplayName = b.UserName, b.ExternalID, b.DisplayName
	u.GivenName, u.FamilyName, u.Email = b.Name.GivenName, b.Name.FamilyName, ""
	if u.DisplayName == "" {
		u.DisplayName = b.Name.Formatted
	}
	for i, e := range b.Emails {
		if i == 0 || e.Primary {
			u.Email = e.Value
		}
	}
	if b.Active != nil {
		u.Active = bool(*b.Active)
	}
	return checkUser(u)
}

// maxText bounds the texts of users and groups.
const maxText = 256

func checkUser(u *people.User) error {
	if strings.TrimSpace(u.UserName) == "" {
		return invalid("invalidValue", "userName is missing.")
	}
	return checkTexts(u.UserName, u.ExternalID, u.DisplayName, u.GivenName, u.FamilyName, u.Email)
}

func checkTexts(texts ...string) error {
	for _, text := range texts {
		if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return invalid("invalidValue", "A text has more than 256 bytes, or a control character.")
		}
	}
	return nil
}

// show returns a user on the wire.
func (d *Door) show(r *http.Request, u *people.User, groups []*people.Group) *user {
	shown := &user{Schemas: []string{schemaUser}, ID: u.ID, ExternalID: u.ExternalID, UserName: u.UserName,
		Name: userName{GivenName: u.GivenName, FamilyName: u.FamilyName}, DisplayName: u.DisplayName, Active: u.Active,
		Groups: []reference{}, Meta: metaOf(r, "User", "/Users/"+u.ID, u.CreatedAt, u.ModifiedAt)}
	if u.Email != "" {
		shown.Emails = []email{{u.Email, "work", true}}
	}
	for _, g := range groups {
		for _, m := range g.Members {
			if m == u.ID {
				shown.Groups = append(shown.Groups, reference{g.ID, g.DisplayName, ""})
			}
		}
	}
	return shown
}

func (d *Door) answer(x *exchange.Exchange, r *http.Request, status int, u *people.User) error {
	groups, err := d.records.Groups(r.Context())
	if err != nil {
		return err
	}
	shown := d.show(r, u, groups)
	x.Header().Set("Location", shown.Meta.Location)
	return write(x, status, shown)
}

// listUsers serves GET /scim/v2/Users.
func (d *Door) listUsers(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	f, err := filterOf(r, "userName", "externalId", "id", "emails.value")
	if err != nil {
		return err
	}
	var found []*people.User
	switch {
	case f != nil && f.attribute == "username":
		u, err := d.records.Named(r.Context(), f.value)
		if err == nil {
			found = append(found, u)
		} else if !errors.Is(err, berth.ErrNotFound) {
			return err
		}
	default:
		all, err := d.records.Users(r.Context())
		if err != nil {
			return err
		}
		for _, u := range all {
			if f == nil || f.attribute == "externalid" && u.ExternalID == f.value ||
				f.attribute == "id" && u.ID == f.value ||
				f.attribute == "emails.value" && strings.EqualFold(u.Email, f.value) {
				found = append(found, u)
			}
		}
	}
	groups, err := d.records.Groups(r.Context())
	if err != nil {
		return err
	}
	l, err := page(r, found, func(u *people.User) any { return d.show(r, u, groups) })
	if err != nil {
		return err
	}
	return write(x, http.StatusOK, l)
}

// createUser serves POST /scim/v2/Users.
func (d *Door) createUser(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	var body userRequest
	if err := decode(x, r, &body); err != nil {
		return err
	}
	wanted := people.User{Active: true}
	if err := body.apply(&wanted); err != nil {
		return err
	}
	u, err := d.records.Create(r.Context(), wanted)
	if err != nil {
		return err
	}
	return d.answer(x, r, http.StatusCreated, u)
}

// getUser serves GET /scim/v2/Users/{user}.
func (d *Door) getUser(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	u, err := d.records.Get(r.Context(), r.PathValue("user"))
	if err != nil {
		return err
	}
	return d.answer(x, r, http.StatusOK, u)
}

// replaceUser serves PUT /scim/v2/Users/{user}.
func (d *Door) replaceUser(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	var body userRequest
	if err := decode(x, r, &body); err != nil {
		return err
	}
	u, err := d.records.Change(r.Context(), r.PathValue("user"), body.apply)
	if err != nil {
		return err
	}
	return d.answer(x, r, http.StatusOK, u)
}

// patchUser serves PATCH /scim/v2/Users/{user}.
func (d *Door) patchUser(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	var body patch
	if err := decode(x, r, &body); err != nil {
		return err
	}
	u, err := d.records.Change(r.Context(), r.PathValue("user"), func(u *people.User) error {
		for _, o := range body.Operations {
			if err := o.user(u); err != nil {
				return err
			}
		}
		return checkUser(u)
	})
	if err != nil {
		return err
	}
	return d.answer(x, r, http.StatusOK, u)
}

// deleteUser serves DELETE /scim/v2/Users/{user}.
func (d *Door) deleteUser(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	if err := d.records.Delete(r.Context(), r.PathValue("user")); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// user does an operation on a user. Attributes that this server does not keep have no effect.
func (o operation) user(u *people.User) error {
	return o.each(func(path string, value json.RawMessage) error {
		into := map[string]*string{"username": &u.UserName, "externalid": &u.ExternalID, "displayname": &u.DisplayName,
			"name.givenname": &u.GivenName, "name.familyname": &u.FamilyName, "name.formatted": &u.DisplayName,
			`emails[type eq "work"].value`: &u.Email, `emails[primary eq true].value`: &u.Email,
			"emails.value": &u.Email}[path]
		switch {
		case path == "active":
			if value == nil {
				return invalid("invalidValue", "active cannot be removed.")
			}
			var active flag
			if err := json.Unmarshal(value, &active); err != nil {
				return invalid("invalidValue", "active is not a boolean.")
			}
			u.Active = bool(active)
		case path == "emails" || path == `emails[type eq "work"]`:
			var mails []email
			if value != nil && json.Unmarshal(value, &mails) != nil {
				return invalid("invalidValue", "emails is not a list.")
			}
			u.Email = ""
			for i, e := range mails {
				if i == 0 || e.Primary {
					u.Email = e.Value
				}
			}
		case path == "name":
			var name userName
			if value != nil && json.Unmarshal(value, &name) != nil {
				return invalid("invalidValue", "name is not an object.")
			}
			u.GivenName, u.FamilyName = name.GivenName, name.FamilyName
		case into != nil:
			var text string
			if value != nil && json.Unmarshal(value, &text) != nil {
				return invalid("invalidValue", path+" is not a text.")
			}
			*into = text
		}
		return nil
	})
}
