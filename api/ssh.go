package api

import (
	"net/http"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/ssh"
	"github.com/berth-run/berth/sshkeys"
)

// SSHOptions are the parts of SSH.
type SSHOptions struct {
	Keys *sshkeys.Service
	Door *ssh.Door // New connects it with the API; nil serves no SSH
}

// connectSSH gives the door of SSH the API for its callers.
func connectSSH(d *ssh.Door, ex *exchange.Server, serve func(x *exchange.Exchange, r *http.Request)) {
	if d == nil {
		return
	}
	d.Connect(ex, permissions[ssh.Pattern], func(c berth.Caller) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ex.As(c, w, r, serve) })
	})
}

// sshKeys serves the public keys of clients of SSH, and connections of SSH in WebSockets.
type sshKeys struct {
	keys       *sshkeys.Service
	door       *ssh.Door
	containers *container.Service
}

// sshKeyBody checks the body of POST /v1/ssh_keys.
var sshKeyBody = rule.Object(rule.Fields{"name": rule.Text(1, 128), "public_key": rule.Text(1, 16<<10),
	"expires_at": rule.Integer(1, 1<<40)}, "public_key")

// An sshKeyRequest is the body of POST /v1/ssh_keys.
type sshKeyRequest struct {
	Name      string `json:"name"` // default: the comment of the key, or its fingerprint
	PublicKey string `json:"public_key"`
	ExpiresAt *int64 `json:"expires_at"` // Unix seconds; default: never
}

// create serves POST /v1/ssh_keys.
func (h *sshKeys) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body sshKeyRequest
	if err := x.Decode(r, sshKeyBody, &body); err != nil {
		return err
	}
	k, err := h.keys.Create(r.Context(), c, sshkeys.Request{Name: body.Name, PublicKey: body.PublicKey,
		ExpiresAt: body.ExpiresAt})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, k)
}

// list serves GET /v1/ssh_keys, the newest first.
func (h *sshKeys) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.keys.List, func(k *sshkeys.Key) string { return string(k.ID) })
}

// sshKeyID returns the id of the request's path.
func sshKeyID(r *http.Request) berth.SSHKeyID { return berth.SSHKeyID(r.PathValue("ssh_key")) }

// get serves GET /v1/ssh_keys/{ssh_key}.
func (h *sshKeys) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.keys.Get, sshKeyID(r))
}

// delete serves DELETE /v1/ssh_keys/{ssh_key}.
func (h *sshKeys) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := sshKeyID(r)
	if err := h.keys.Delete(r.Context(), c, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "ssh_key.deleted"))
}

// connect serves GET /v1/containers/{container}/ssh: a connection of SSH in binary messages of a WebSocket. The request
// identifies the caller, so the client needs no key of SSH. The command berth ssh-proxy uses it.
func (h *sshKeys) connect(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.door == nil {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve SSH.")
	}
	box, err := h.containers.Get(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	if !exchange.HeaderHas(r.Header, "Upgrade", "websocket") {
		x.Header().Set("Connection", "Upgrade")
		x.Header().Set("Upgrade", "websocket")
		x.Error(http.StatusUpgradeRequired, exchange.Error{Type: exchange.TypeInvalid,
			Code:    exchange.OrNull("upgrade_required"),
			Message: "Upgrade required. Connect with a WebSocket, such as by 'berth ssh-proxy'."})
		return nil
	}
	// The origin need not be checked here: as for other WebSockets, see package socket.
	conn, err := websocket.Accept(x, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil // the client has the answer
	}
	conns.Known(r.Context())
	conn.SetReadLimit(1 << 20)
	defer conn.CloseNow()
	h.door.Tunnel(r.Context(), websocket.NetConn(r.Context(), conn, websocket.MessageBinary), c, box.ID, r.RemoteAddr)
	return nil
}
