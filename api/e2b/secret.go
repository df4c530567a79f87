package e2b

import (
	"encoding/base64"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/secrets"
)

// errNoSecrets is the error of a door without secrets.
var errNoSecrets = berth.Errorf(berth.CodeUnavailable, "This server stores no secrets.")

// Package secrets checks the lengths.
var (
	secretFields = rule.Fields{"name": rule.AnyText, "value": rule.AnyText, "metadata": texts}
	newSecret    = rule.Object(secretFields, "name", "value")
	newValue     = rule.Object(rule.Fields{"value": rule.AnyText, "metadata": texts}, "value")
)

// A secretRequest is a new secret, or a new value of one. Without metadata, the former stays.
type secretRequest struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"` // no answer has it
	Metadata map[string]string `json:"metadata"`
}

// A secretInfo describes a secret.
type secretInfo struct {
	ID        berth.SecretID    `json:"secretID"`
	Name      string            `json:"name"`
	Version   int64             `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt string            `json:"createdAt"` // RFC 3339
	UpdatedAt string            `json:"updatedAt"`
}

func secretOf(s *secrets.Secret) secretInfo {
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	return secretInfo{s.ID, s.Name, s.Version, s.Metadata, at(s.CreatedAt), at(s.UpdatedAt)}
}

// secretStore serves secrets.
type secretStore struct{ service *secrets.Service } // nil stores none

// create serves POST /secrets.
func (h *secretStore) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req secretRequest
	if err := x.Decode(r, newSecret, &req); err != nil {
		return err
	}
	if h.service == nil {
		return errNoSecrets
	}
	s, err := h.service.Create(r.Context(), c, req.Name, secrets.Request{Value: req.Value, Metadata: req.Metadata})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusCreated, secretOf(s))
}

// list serves GET /secrets: those of the project, the oldest first. A token of the next page is the last name in
// base64.
func (h *secretStore) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoSecrets
	}
	limit, err := limitOf(r.URL.Query().Get("limit"))
	if err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("nextToken"))
	if err != nil {
		return berth.Invalid("nextToken", "Invalid 'nextToken'.")
	}
	page := exchange.Page{Limit: limit, After: string(after), Ascending: true}
	list, more, err := h.service.List(r.Context(), c.Project, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	out := []secretInfo{}
	for _, s := range list {
		out = append(out, secretOf(s))
	}
	if more {
		x.Header().Set(nextToken, base64.RawURLEncoding.EncodeToString([]byte(list[len(list)-1].Name)))
	}
	return x.JSON(http.StatusOK, out)
}

// get serves GET /secrets/{secret}, an id or a name.
func (h *secretStore) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoSecrets
	}
	s, err := h.service.Get(r.Context(), c.Project, r.PathValue("secret"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, secretOf(s))
}

// update serves POST /secrets/{secret}: a new version. The next request of a sandbox has its value.
func (h *secretStore) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req secretRequest
	if err := x.Decode(r, newValue, &req); err != nil {
		return err
	}
	if h.service == nil {
		return errNoSecrets
	}
	s, err := h.service.Update(r.Context(), c, r.PathValue("secret"), secrets.Request{Value: req.Value,
		Metadata: req.Metadata})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, secretOf(s))
}

// delete serves DELETE /secrets/{secret}. Requests of sandboxes that need it are refused from now on.
func (h *secretStore) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoSecrets
	}
	if err := h.service.Delete(r.Context(), c, r.PathValue("secret")); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}
