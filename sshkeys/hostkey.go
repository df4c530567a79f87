package sshkeys

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// HostKey returns the key of the host. The first server makes it; all servers of a cluster have the same. The store
// seals it as all that it has.
func HostKey(ctx context.Context, objects store.Objects) (ssh.Signer, error) {
	key := store.ObjectKey{Kind: store.KindSSHHostKey, ID: "ed25519"}
	o, err := objects.GetObject(ctx, berth.AdminProject, key)
	if errors.Is(err, store.ErrNotFound) {
		if o, err = newHostKey(key); err == nil {
			err = objects.CreateObjects(ctx, berth.AdminProject, o)
		}
		if errors.Is(err, store.ErrExists) { // another server was faster
			o, err = objects.GetObject(ctx, berth.AdminProject, key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("SSH host key: %w", err)
	}
	var stored hostKey
	var signer ssh.Signer
	if err = json.Unmarshal(o.Body, &stored); err == nil {
		signer, err = ssh.ParsePrivateKey([]byte(stored.PrivateKey))
	}
	if err != nil {
		return nil, fmt.Errorf("SSH host key: %w", err)
	}
	return signer, nil
}

// A hostKey is the stored key.
type hostKey struct {
	PrivateKey string `json:"private_key"` // as OpenSSH writes it
}

func newHostKey(key store.ObjectKey) (*store.Object, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, fmt.Errorf("encode host key: %w", err)
	}
	body, err := json.Marshal(hostKey{string(pem.EncodeToMemory(block))})
	return &store.Object{ObjectKey: key, CreatedAt: time.Now().Unix(), Body: body}, err
}
