package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// A savedContext is a server that berth login has stored, with its key.
type savedContext struct {
	Name      string `yaml:"name"`
	URL       string `yaml:"url"`
	Key       string `yaml:"key,omitempty"`
	PlainHTTP bool   `yaml:"plain_http,omitempty"` // the key may be sent unencrypted
	// Person is set if the key is the session of a person; ExpiresAt is when it ends, in Unix seconds.
	Person    string `yaml:"person,omitempty"`
	ExpiresAt int64  `yaml:"expires_at,omitempty"`
}

// savedContexts is the file of contexts. Only its owner may read it.
type savedContexts struct {
	Current  string         `yaml:"current"`
	Contexts []savedContext `yaml:"contexts"`
}

func (s *savedContexts) find(name string) *savedContext {
	for i := range s.Contexts {
		if s.Contexts[i].Name == name {
			return &s.Contexts[i]
		}
	}
	return nil
}

func (s *savedContexts) current() *savedContext { return s.find(s.Current) }

func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "berth", "contexts.yaml"), err
}

// readContexts returns the stored contexts. It is never nil.
func readContexts() (*savedContexts, error) {
	s := &savedContexts{}
	path, err := contextsFile()
	if err != nil {
		return s, nil // no home directory: nothing is stored
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = yaml.Unmarshal(text, s)
	}
	if err != nil {
		return &savedContexts{}, fmt.Errorf("read contexts: %w", err)
	}
	return s, nil
}

func (s *savedContexts) write() error {
	path, err := contextsFile()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	_, err = saveAt(path, strings.NewReader(string(text)), 0o600, true)
	return err
}

func newContext() *cobra.Command {
	cmd := &cobra.Command{Use: "context", Short: "List, select and remove the servers of berth login"}
	cmd.AddCommand(newContextLs(),
		&cobra.Command{Use: "use NAME", Short: "Select the context that commands use", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				return changeContexts(args[0], func(s *savedContexts) { s.Current = args[0] })
			}},
		&cobra.Command{Use: "rm NAME", Short: "Remove a context and its key", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				return changeContexts(args[0], func(s *savedContexts) {
					var left []savedContext
					for _, one := range s.Contexts {
						if one.Name != args[0] {
							left = append(left, one)
						}
					}
					s.Contexts = left
					if s.Current == args[0] {
						s.Current = ""
					}
				})
			}})
	return cmd
}

// A contextRow is a context as berth context ls prints it.
type contextRow struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
}

func newContextLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List contexts", Args: cobra.NoArgs}
	l := listFlags[contextRow](cmd, "name=work", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		saved, err := readContexts()
		if err != nil {
			return err
		}
		var rows []contextRow
		for _, one := range saved.Contexts {
			rows = append(rows, contextRow{one.Name, one.URL, one.Name == saved.Current})
		}
		return printList(cmd.OutOrStdout(), l, rows, func(r contextRow) string {
			return r.Name
		}, "CURRENT\tNAME\tURL", func(r contextRow) string {
			mark := ""
			if r.Current {
				mark = "*"
			}
			return mark + "\t" + inLine(r.Name) + "\t" + inLine(r.URL)
		})
	}
	return cmd
}

// changeContexts changes and stores the contexts, if there is one of that name.
func changeContexts(name string, change func(*savedContexts)) error {
	saved, err := readContexts()
	if err != nil {
		return err
	}
	if saved.find(name) == nil {
		return fmt.Errorf("no context %q; berth context ls lists them", name)
	}
	change(saved)
	return saved.write()
}
