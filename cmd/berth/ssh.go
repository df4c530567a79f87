package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sshkeys"
)

var publicKeys = kind{"SSH key", "/v1/ssh_keys", berth.PrefixSSHKey, 0}

func newSSHKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ssh-key",
		Short: "Add, list and remove public keys for SSH",
		Long: `Add, list and remove public keys with which clients of SSH sign in. A public key acts as
the API key, or the person, that added it, and ends with it.

  berth ssh-key add ~/.ssh/id_ed25519.pub
  ssh -p 2222 CONTAINER@SERVER`,
	}
	cmd.AddCommand(newSSHKeyAdd(), newSSHKeyLs(), newDelete(publicKeys, "SSH-KEY", ""))
	return cmd
}

func newSSHKeyAdd() *cobra.Command {
	cmd := &cobra.Command{Use: "add FILE", Short: "Add a public key and print its id; - reads it from standard input",
		Args: cobra.ExactArgs(1)}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	name := cmd.Flags().String("name", "", "name of the key (default: its comment)")
	var expires time.Duration
	durationFlag(cmd, &expires, "expires", "", 0, "lifetime, such as 30d; 0 means no expiry")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := readPublicKey(cmd.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		_, comment, err := sshkeys.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		body := map[string]any{"public_key": text}
		switch {
		case *name != "":
			body["name"] = *name
		case comment == "":
			body["name"] = "key"
		}
		if expires > 0 {
			body["expires_at"] = time.Now().Add(expires).Unix()
		}
		var k sshkeys.Key
		if err := connect().call(cmd.Context(), "POST", publicKeys.path, body, &k); err != nil {
			return err
		}
		return created(string(k.ID), &k)
	}
	return cmd
}

// readPublicKey reads a public key from a file, or from standard input.
func readPublicKey(in io.Reader, name string) (string, error) {
	const most = 16 << 10
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && len(raw) > most {
		err = fmt.Errorf("%s has more than %d bytes: it is no public key", name, most)
	}
	return strings.TrimSpace(string(raw)), err
}

func newSSHKeyLs() *cobra.Command {
	return newLs(publicKeys, "name=laptop*", "NAME\tFINGERPRINT\tACTS AS\tCREATED\tEXPIRES",
		func(k *sshkeys.Key) string { return string(k.ID) }, func(l *listing, k *sshkeys.Key) string {
			now, expires := time.Now(), "never"
			if k.ExpiresAt != nil {
				expires = l.until(now, *k.ExpiresAt)
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", l.cut(inLine(k.Name), 24), k.Fingerprint, l.id(string(k.APIKeyID)),
				l.since(now, k.CreatedAt), expires)
		})
}

// proxySuffix may end the host of a client of SSH, so that a configuration can name all containers.
const proxySuffix = ".berth"

func newSSHProxy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ssh-proxy CONTAINER",
		Short: "Carry a connection of SSH over HTTPS, as a ProxyCommand",
		Long: `Carry a connection of SSH to a container over the server's own address, where no other port
can be reached. The API key is the proof: the client of SSH needs no key, and any user name
works. A name may end with .berth, so that ~/.ssh/config can have

  Host *.berth
    ProxyCommand berth ssh-proxy %h
    HostKeyAlias berth

for ssh box.berth, scp, sftp, rsync and editors.`,
		Args: cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, strings.TrimSuffix(args[0], proxySuffix))
		if err != nil {
			return err
		}
		conn, err := c.dialSSH(cmd.Context(), id)
		if err != nil {
			return err
		}
		defer conn.Close()
		go func() {
			_, _ = io.Copy(conn, cmd.InOrStdin())
			conn.Close() // a client of SSH closes its side when it has ended
		}()
		_, _ = io.Copy(cmd.OutOrStdout(), conn) // the client of SSH tells of a connection that broke
		return nil
	}
	return cmd
}

// dialSSH opens a connection of SSH to a container.
func (c *client) dialSSH(ctx context.Context, id string) (net.Conn, error) {
	if err := checkURL(c.base); err != nil {
		return nil, err
	}
	path := "/v1/containers/" + url.PathEscape(id) + "/ssh"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	ws, resp, err := websocket.Dial(ctx, c.base+path,
		&websocket.DialOptions{HTTPClient: c.http, HTTPHeader: req.Header})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, c.answerError(resp)
		}
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	return websocket.NetConn(ctx, ws, websocket.MessageBinary), nil
}
