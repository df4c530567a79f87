package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

func connectOptions() []connect.HandlerOption {
	return []connect.HandlerOption{connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil)}
}

// requestUser returns the user that a request acts for: the name in HTTP Basic with an
// empty password, as in envd, or the default user.
func (s *Server) requestUser(h http.Header) (identity, error) {
	name, err := basicUser(h)
	if err != nil {
		return identity{}, err
	}
	if name == "" || name == s.owner.name {
		return s.owner, nil
	}
	id, err := lookup(name)
	if err != nil {
		return identity{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: '%s'", name))
	}
	return id, nil
}

func basicUser(h http.Header) (string, error) {
	encoded, ok := strings.CutPrefix(h.Get("Authorization"), "Basic ")
	if !ok {
		return "", nil
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", connect.NewError(connect.CodeUnauthenticated, err)
	}
	name, _, _ := strings.Cut(string(raw), ":")
	return name, nil
}

// SetEnvironment implements berth.guest.v1.Guest.
func (s *Server) SetEnvironment(_ context.Context, req *connect.Request[v1.SetEnvironmentRequest],
) (*connect.Response[v1.SetEnvironmentResponse], error) {
	s.environment.Store(&req.Msg.Environment)
	s.shell.state.outdated()
	return connect.NewResponse(&v1.SetEnvironmentResponse{}), nil
}

// Info implements berth.guest.v1.Guest.
func (s *Server) Info(context.Context, *connect.Request[v1.InfoRequest]) (*connect.Response[v1.InfoResponse], error) {
	return connect.NewResponse(&v1.InfoResponse{Version: s.opts.Version, StartedAtMs: s.started.UnixMilli(),
		User: s.owner.name, Workdir: s.opts.WorkDir}), nil
}
