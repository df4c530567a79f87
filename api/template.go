package api

import (
	"context"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// templates serves the templates of containers. If all is nil, there are none.
type templates struct{ all Templates }

// Templates provides the templates that the containers of a project may use.
type Templates interface {
	Templates(ctx context.Context, p berth.ProjectID) ([]berth.Template, error)
	// Template returns the template with the given name or id. Its errors for clients are
	// *berth.Error.
	Template(ctx context.Context, p berth.ProjectID, ref string) (berth.Template, error)
}

// list serves GET /v1/templates.
func (h *templates) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var all []berth.Template
	if h.all != nil {
		var err error
		if all, err = h.all.Templates(r.Context(), c.Project); err != nil {
			return err
		}
	}
	list := make([]*berth.Template, len(all))
	for i := range all {
		list[i] = &all[i]
	}
	return x.JSON(http.StatusOK, exchange.ListOf(list, false, func(t *berth.Template) string { return t.ID }))
}

// get serves GET /v1/templates/{template}, where template is a name or an id.
func (h *templates) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.all == nil {
		return berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", r.PathValue("template"))
	}
	t, err := h.all.Template(r.Context(), c.Project, r.PathValue("template"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, t)
}
