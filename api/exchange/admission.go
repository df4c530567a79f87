package exchange

import (
	"context"
	"net/http"

	"github.com/berth-run/berth"
)

// Admit returns the caller with an API key, for a door whose clients do not send HTTP. It returns an error for a caller
// without a permission, or whose scope lacks a pattern. Without any API key on the server, it admits nobody.
func (s *Server) Admit(ctx context.Context, token string, needed berth.Permission, pattern string) (berth.Caller,
	error) {
	refused := &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
		Message: "Incorrect API key provided."}
	open, err := s.open.is(ctx)
	if err == nil && open {
		err = refused
	}
	if err != nil {
		return berth.Caller{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return berth.Caller{}, err
	}
	rt := On(pattern, nil)
	rt.Permission = needed
	r.Header.Set("Authorization", "Bearer "+token)
	return s.identifyFor(r, &rt)
}

// Readmit returns a caller, whom Admit or a request has identified before, with what it may do now. It returns an error
// if that is not enough.
func (s *Server) Readmit(ctx context.Context, c berth.Caller, needed berth.Permission, pattern string) (berth.Caller,
	error) {
	rt := On(pattern, nil)
	rt.Permission = needed
	return s.recheck(ctx, c, &rt)
}
