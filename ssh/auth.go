package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
)

// An Authority signs certificates of users. The principals of a certificate are the projects that it is for.
type Authority struct {
	Key      ssh.PublicKey
	Projects []berth.ProjectID // that its certificates may be for
	Role     berth.Role        // of their users; default RoleRunner
	Revoked  []string          // ids of certificates (ssh-keygen -I) that are refused
}

// maxCertificate bounds the life of a certificate: an authority has no other way to end it than Revoked.
const maxCertificate = 31 * 24 * time.Hour

// An entrant is a client that has signed in.
type entrant struct {
	caller    berth.Caller
	container berth.ContainerID // empty if the project has none with the user name
	user      string            // the user name
	method    string            // password, publickey, certificate or tunnel
	name      string            // who it is: a fingerprint, or the id of a certificate; empty with an API key
	noPTY     bool              // refused by a certificate, as the next one
	noPorts   bool
	valid     func(ctx context.Context) error
}

// proof names what proves the entrant's right.
func (e *entrant) proof() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%s\x00%s", e.caller.Project, e.caller.Key, e.caller.Session, e.method, e.name)
}

// entrantKey is the key of an entrant in ssh.Permissions.
type entrantKey struct{}

// An attempt is a connection of the listener that has not signed in.
type attempt struct {
	door    *Door
	address netip.Addr
	remote  string
	guesses int // passwords that were refused
	offered int // public keys that were refused
}

// errRefused is what a client learns of a refusal.
var errRefused = errors.New("permission denied")

// maxTries is the number of refused methods after which a connection ends, as OpenSSH's MaxAuthTries.
const maxTries = 6

func (a *attempt) config() *ssh.ServerConfig {
	return &ssh.ServerConfig{ServerVersion: version, MaxAuthTries: maxTries, PasswordCallback: a.password,
		PublicKeyCallback: a.publicKey}
}

// failed counts a connection that did not sign in.
func (a *attempt) failed() {
	reason := "not signed in"
	switch {
	case a.guesses > 0:
		reason = "password"
	case a.offered > 0:
		reason = "publickey"
	}
	if n := a.door.failures.add(a.address, 1+a.guesses); n > 0 && a.door.opts.Audit != nil {
		a.door.opts.Audit.Record(audit.Entry{Action: audit.SSHRefused, Address: a.remote, Reason: reason,
			Count: int64(n)})
	}
}

// entrant returns who has signed in.
func (a *attempt) entrant(p *ssh.Permissions) *entrant { return p.ExtraData[entrantKey{}].(*entrant) }

// admitted returns the permissions of an entrant.
func admitted(e *entrant) *ssh.Permissions {
	return &ssh.Permissions{ExtraData: map[any]any{entrantKey{}: e}}
}

// password admits a client with an API key.
func (a *attempt) password(meta ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
	ctx := a.door.ctx
	if a.door.failures.tooMany(a.address) {
		return nil, errRefused
	}
	c, err := a.door.identity.Admit(ctx, string(bytes.TrimSpace(password)), a.door.needed, Pattern)
	if err != nil {
		a.guesses++
		if berth.ErrorCode(err) == berth.CodeForbidden { // the key is right, so the client may know the reason
			return nil, &ssh.BannerError{Err: errRefused, Message: reason(err) + "\r\n"}
		}
		return nil, errRefused
	}
	e := &entrant{caller: c, method: "password", valid: a.door.readmit(c)}
	return a.door.admit(ctx, e, meta.User())
}

// reason returns the message of an error for clients.
func reason(err error) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return "The server failed. Try again in a moment."
}

// readmit returns the check of a caller with a key.
func (d *Door) readmit(c berth.Caller) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := d.identity.Readmit(ctx, c, d.needed, Pattern)
		return err
	}
}

// admit finds the container of an entrant.
func (d *Door) admit(ctx context.Context, e *entrant, user string) (*ssh.Permissions, error) {
	id, err := d.find(ctx, e.caller.Project, user)
	if err != nil {
		return nil, err
	}
	e.container, e.user = id, user
	return admitted(e), nil
}

// find returns the running container of a project with an id or a name, or "".
func (d *Door) find(ctx context.Context, p berth.ProjectID, ref string) (berth.ContainerID, error) {
	if strings.HasPrefix(ref, berth.PrefixContainer) {
		c, err := d.opts.Containers.Get(ctx, p, berth.ContainerID(ref))
		if err == nil && c.Status == berth.ContainerRunning {
			return c.ID, nil
		}
		if err == nil || berth.ErrorCode(err) == berth.CodeNotFound {
			return "", nil
		}
		return "", fmt.Errorf("find container: %w", err)
	}
	if ref == "" {
		return "", nil
	}
	list, _, err := d.opts.Containers.List(ctx, p, ref, berth.Page{Limit: 100})
	if err != nil {
		return "", fmt.Errorf("find container by name: %w", err)
	}
	for _, c := range list {
		if c.Status == berth.ContainerRunning {
			return c.ID, nil
		}
	}
	return "", nil
}

// publicKey admits a client with a public key or a certificate. The client may not have proved yet that it has the
// private key, so nothing here depends on more than a right key.
func (a *attempt) publicKey(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	ctx := a.door.ctx
	if a.door.failures.tooMany(a.address) {
		return nil, errRefused
	}
	var p *ssh.Permissions
	var err error
	if cert, ok := key.(*ssh.Certificate); ok {
		p, err = a.door.certificate(ctx, meta, cert)
	} else {
		p, err = a.door.holder(ctx, meta.User(), key)
	}
	if err != nil {
		a.offered++
		return nil, errRefused
	}
	return p, nil
}

// holder admits a client with a public key. If several projects have it, the user name decides which one is meant.
func (d *Door) holder(ctx context.Context, user string, key ssh.PublicKey) (*ssh.Permissions, error) {
	holders, err := d.opts.Keys.Holders(ctx, key)
	if err != nil {
		return nil, err
	}
	var first *ssh.Permissions
	for _, h := range holders {
		valid := d.holding(h.Project, h.Key.ID)
		c, err := valid(ctx)
		if err != nil {
			continue
		}
		e := &entrant{caller: c, method: "publickey", name: h.Key.Fingerprint, valid: func(ctx context.Context) error {
			_, err := valid(ctx)
			return err
		}}
		p, err := d.admit(ctx, e, user)
		if err != nil {
			return nil, err
		}
		if e.container != "" {
			return p, nil
		}
		if first == nil {
			first = p
		}
	}
	if first == nil {
		return nil, errRefused
	}
	return first, nil
}

// holding returns a function that returns the caller as which a public key acts now.
func (d *Door) holding(p berth.ProjectID, id berth.SSHKeyID) func(context.Context) (berth.Caller, error) {
	return func(ctx context.Context) (berth.Caller, error) {
		k, err := d.opts.Keys.Get(ctx, p, id)
		if berth.ErrorCode(err) == berth.CodeNotFound || err == nil && k.Expired(d.opts.Clock.Now()) {
			return berth.Caller{}, berth.Errorf(berth.CodeUnauthorized, "The public key was removed or has expired.")
		}
		if err != nil {
			return berth.Caller{}, err
		}
		return d.identity.Readmit(ctx, berth.Caller{Project: p, Key: k.APIKeyID}, d.needed, Pattern)
	}
}

// certificate admits a client with a certificate.
func (d *Door) certificate(ctx context.Context, meta ssh.ConnMetadata, cert *ssh.Certificate) (*ssh.Permissions,
	error) {
	i := slices.IndexFunc(d.opts.Authorities, func(a Authority) bool {
		return bytes.Equal(a.Key.Marshal(), cert.SignatureKey.Marshal())
	})
	if i < 0 || cert.CertType != ssh.UserCert {
		return nil, errRefused
	}
	a := d.opts.Authorities[i]
	if slices.Contains(a.Revoked, cert.KeyId) || len(cert.ValidPrincipals) == 0 || lifeOf(cert) > maxCertificate {
		return nil, errRefused
	}
	checker := &ssh.CertChecker{Clock: d.opts.Clock.Now,
		IsUserAuthority: func(ssh.PublicKey) bool { return true }} // it was found above
	var first *ssh.Permissions
	for _, project := range a.Projects {
		if !slices.Contains(cert.ValidPrincipals, string(project)) {
			continue
		}
		// It also refuses critical options, except source-address.
		if err := checker.CheckCert(string(project), cert); err != nil {
			return nil, fmt.Errorf("check certificate: %w", err)
		}
		role := a.Role
		if role == "" {
			role = berth.RoleRunner
		}
		e := &entrant{method: "certificate", name: cert.KeyId,
			caller: berth.Caller{Project: project, Permissions: role.Permissions(project)}}
		_, pty := cert.Extensions["permit-pty"]
		_, ports := cert.Extensions["permit-port-forwarding"]
		e.noPTY, e.noPorts = !pty, !ports
		e.valid = func(ctx context.Context) error {
			if d.opts.Clock.Now().Unix() >= int64(cert.ValidBefore) {
				return berth.Errorf(berth.CodeUnauthorized, "The certificate has expired.")
			}
			if !e.caller.May(d.needed) {
				return berth.Forbidden(d.needed)
			}
			// As a caller without a key, for whom this checks the project alone.
			_, err := d.identity.Readmit(ctx, berth.Caller{Project: project}, d.needed, Pattern)
			return err
		}
		if e.valid(ctx) != nil {
			continue
		}
		p, err := d.admit(ctx, e, meta.User())
		if err != nil {
			return nil, err
		}
		p.CriticalOptions = cert.CriticalOptions // the library checks source-address
		if e.container != "" {
			return p, nil
		}
		if first == nil {
			first = p
		}
	}
	if first == nil {
		return nil, errRefused
	}
	return first, nil
}

// lifeOf returns for how long a certificate is valid.
func lifeOf(cert *ssh.Certificate) time.Duration {
	if cert.ValidBefore > 1<<40 || cert.ValidBefore <= cert.ValidAfter { // without an end, or never valid
		return 1<<63 - 1
	}
	return time.Duration(cert.ValidBefore-cert.ValidAfter) * time.Second
}
