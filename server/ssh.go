package server

import (
	"context"
	"fmt"
	"net"

	xssh "golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/ssh"
	"github.com/berth-run/berth/sshkeys"
)

// openSSH makes the door of SSH, which the API connects.
func (s *Server) openSSH(ctx context.Context, b *base, containers *container.Service) (api.SSHOptions, error) {
	host, err := sshkeys.HostKey(ctx, b.db)
	if err != nil {
		return api.SSHOptions{}, err
	}
	keys := sshkeys.New(sshkeys.Options{Objects: b.db, Audit: b.audit})
	opts := ssh.Options{HostKey: host, Keys: keys, Containers: containers, Audit: b.audit, Log: b.Log,
		Limits: ssh.Limits{Connections: b.Config.SSH.Connections, PerAddress: b.Config.SSH.PerAddress}}
	for _, a := range b.Config.SSH.Authorities {
		key, err := a.PublicKey()
		if err != nil {
			return api.SSHOptions{}, fmt.Errorf("ssh.authorities: %w", err)
		}
		authority := ssh.Authority{Key: key, Role: berth.Role(a.Role), Revoked: a.Revoked}
		for _, p := range a.Projects {
			authority.Projects = append(authority.Projects, berth.ProjectID(p))
		}
		opts.Authorities = append(opts.Authorities, authority)
	}
	s.ssh = ssh.New(opts)
	s.later(s.ssh.Close)
	return api.SSHOptions{Keys: keys, Door: s.ssh}, nil
}

// serveSSH serves SSH at an address, unless it is empty.
func (s *Server) serveSSH(address string) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("ssh.listen: %w", err)
	}
	go func() {
		if err := s.ssh.Serve(l); err != nil {
			s.log.Error("failed to accept connections of SSH", "err", err)
		}
	}()
	s.later(func(context.Context) error { return l.Close() })
	s.log.Info("serving SSH", "address", l.Addr().String(), "host_key", xssh.FingerprintSHA256(s.ssh.HostKey()))
	return nil
}
