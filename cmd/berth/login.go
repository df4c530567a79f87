package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth"
)

func newLogin() *cobra.Command {
	var name string
	var browser, device bool
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Store a server and its key as a context",
		Long: `Store a server and its key as a context, which becomes the current one. The key is read from
the terminal or from standard input, and verified. It is stored in a file that only you can
read, and sent to this server only.

  berth login https://berth.example.com
  berth login https://berth.example.com --name work < key
  berth login https://berth.example.com --browser
  berth login https://berth.example.com --device

With --browser or --device you sign in yourself, at the identity provider of the server
(sign_in in its configuration), and no key is needed: --browser opens the browser of this
computer, --device shows a code that you enter in the browser of another. The session that
is stored has your roles in one project, and ends after the time that the server sets, with
berth logout, or when an operator ends it.

--url and BERTH_URL override the current context, BERTH_API_KEY its key.`,
		Args: cobra.ExactArgs(1),
	}
	plain := plainFlag(cmd)
	cmd.Flags().StringVar(&name, "name", "", "name of the context (default: the URL's host)")
	cmd.Flags().BoolVar(&browser, "browser", false, "sign in with the browser of this computer")
	cmd.Flags().BoolVar(&device, "device", false, "sign in with a browser of another computer")
	cmd.MarkFlagsMutuallyExclusive("browser", "device")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := newClient(args[0], *plain)
		host := strings.TrimPrefix(strings.TrimPrefix(c.base, "https://"), "http://")
		if name == "" {
			name = host
		}
		one := savedContext{Name: name, URL: c.base, PlainHTTP: *plain}
		if browser || device {
			c.key = "" // the person signs in without the key of the environment
			s, err := signIn(cmd, c, browser)
			if err != nil {
				return err
			}
			one.Key, one.Person, one.ExpiresAt = s.AccessToken, s.Person, time.Now().Unix()+s.ExpiresIn
		} else {
			var err error
			if c.key, err = readKey(cmd, host); err != nil {
				return err
			}
			if err := c.call(cmd.Context(), "GET", "/v1/models", nil, nil); err != nil {
				return err
			}
			one.Key = c.key
		}
		if err := saveContext(cmd.Context(), one); err != nil {
			return err
		}
		if one.Person != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "Signed in as %s until %s.\n", inLine(one.Person),
				time.Unix(one.ExpiresAt, 0).Format("2006-01-02 15:04"))
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Logged in to %s as context %s.\n", c.base, inLine(name))
		return nil
	}
	return cmd
}

// saveContext stores a context as the current one. It ends the session that the context of this name had.
func saveContext(ctx context.Context, one savedContext) error {
	saved, err := readContexts()
	if err != nil {
		return err
	}
	if before := saved.find(one.Name); before != nil {
		if before.Person != "" {
			// The session ends by itself too; its server may be gone.
			_ = before.client().revoke(ctx, before.Key)
		}
		*before = one
	} else {
		saved.Contexts = append(saved.Contexts, one)
	}
	saved.Current = one.Name
	return saved.write()
}

// client returns a client of the context's server, without a key.
func (c *savedContext) client() *client {
	made := newClient(c.URL, c.PlainHTTP)
	made.key = ""
	return made
}

// readKey reads a key from the terminal, without echo, or from the first line of standard input. The
// key of a server in open mode is empty.
func readKey(cmd *cobra.Command, host string) (string, error) {
	if stdin := int(os.Stdin.Fd()); term.IsTerminal(stdin) {
		fmt.Fprintf(cmd.ErrOrStderr(), "API key for %s (empty if it needs none): ", inLine(host))
		key, err := term.ReadPassword(stdin)
		fmt.Fprintln(cmd.ErrOrStderr())
		return strings.TrimSpace(string(key)), err
	}
	lines := bufio.NewScanner(cmd.InOrStdin())
	lines.Scan()
	return strings.TrimSpace(lines.Text()), lines.Err()
}

func newLogout() *cobra.Command {
	return &cobra.Command{Use: "logout [CONTEXT]", Short: "End the session of a context",
		Long: `End the session of a context, by default of the current one, and forget its key. The
context itself stays. A key that is no session of a person is only forgotten: berth key rm
revokes it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := readContexts()
			if err != nil {
				return err
			}
			one := saved.current()
			if len(args) > 0 {
				one = saved.find(args[0])
			}
			switch {
			case one == nil && len(args) > 0:
				return fmt.Errorf("no context %q; berth context ls lists them", args[0])
			case one == nil:
				return badUsage("there is no current context; name one of berth context ls")
			}
			var failed error
			if one.Person != "" {
				failed = one.client().revoke(cmd.Context(), one.Key)
			}
			host := one.URL
			one.Key, one.Person, one.ExpiresAt = "", "", 0
			if err := saved.write(); err != nil {
				return err
			}
			if failed != nil {
				return fmt.Errorf("the key is forgotten, but the server was not told, so that the session lasts until it expires: %w",
					failed)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Logged out of %s.\n", inLine(host))
			return nil
		}}
}

// An identity is the answer of GET /v1/whoami.
type identity struct {
	KeyID       berth.KeyID     `json:"key_id"`
	ProjectID   berth.ProjectID `json:"project_id"`
	Person      string          `json:"person"`
	Session     bool            `json:"session"`
	Permissions []string        `json:"permissions"`
}

func newWhoAmI() *cobra.Command {
	cmd := &cobra.Command{Use: "whoami", Short: "Show whom the server takes you for", Args: cobra.NoArgs}
	c := clientFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := c()
		if *asJSON {
			return c.printObject(cmd, "/v1/whoami")
		}
		var who identity
		if err := c.call(cmd.Context(), "GET", "/v1/whoami", nil, &who); err != nil {
			return err
		}
		return printIdentity(cmd.OutOrStdout(), c, &who)
	}
	return cmd
}

func printIdentity(w io.Writer, c *client, who *identity) error {
	rows := [][2]string{{"Server", c.base}}
	if who.Person != "" {
		rows = append(rows, [2]string{"Person", who.Person})
	}
	if who.KeyID != "" {
		rows = append(rows, [2]string{"Key", string(who.KeyID)})
	}
	rows = append(rows, [2]string{"Project", string(who.ProjectID)},
		[2]string{"May", strings.Join(who.Permissions, " ")})
	if c.expires != 0 && who.Session {
		rows = append(rows, [2]string{"Until", time.Unix(c.expires, 0).Format("2006-01-02 15:04")})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(w, "%-8s %s\n", r[0], inLine(r[1])); err != nil {
			return err
		}
	}
	return nil
}
