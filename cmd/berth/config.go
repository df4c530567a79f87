package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/doctor"
	"github.com/berth-run/berth/server/state"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show or begin a configuration file of berth serve",
	}
	cmd.AddCommand(newConfigCheck(), newConfigShow(), newConfigInit())
	return cmd
}

func newConfigCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration as berth serve does",
		Long: `Check a configuration as berth serve does at its start: the file, the environment
variables that it names or that set its keys, the files of certificates, and in the state
directory, if it exists, the keys that an address needs. Start nothing.
Report all errors, and warn about what is allowed but probably not meant, and about a driver,
a database or a bucket that this machine cannot use now.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadVerified(cmd, args...)
			if err == nil {
				err = errors.Join(state.VerifyBlobs(c), state.Verify(cmd.Context(), c))
			}
			if err != nil {
				return err
			}
			for _, w := range slices.Concat(c.Warnings(), doctor.StateWarnings(c),
				doctor.MachineWarnings(cmd.Context(), c)) {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
			valid := "the configuration is valid"
			if c.File() == "" {
				valid = "the defaults, flags and variables are valid; to check a file, name it: berth config check berth.yaml"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), valid)
			return err
		},
	}
	serveFlags(cmd)
	return cmd
}

func newConfigShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show the effective configuration, and where each value comes from",
		Long: `Show the effective configuration in YAML. A comment on each line says where its value
comes from: a line of the file, an environment variable, a flag, or the default. Keys,
headers and passwords in addresses are masked.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd, args...)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(c.Show())
			return err
		},
	}
	serveFlags(cmd)
	return cmd
}

func newConfigInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration file to begin with",
		Long: `Write a configuration file to begin with, in which all keys are commented out, to FILE or
to standard output. An existing file is not replaced.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := cmd.OutOrStdout().Write(config.Starter)
				return err
			}
			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists; name another file, or remove it first", args[0])
			}
			if err != nil {
				return err
			}
			_, err = f.Write(config.Starter)
			return errors.Join(err, f.Close())
		},
	}
}

// serveFlags adds the flags that are settings of a server.
func serveFlags(cmd *cobra.Command) {
	configFlag(cmd)
	for _, s := range config.Settings {
		if s.IsBool() {
			cmd.Flags().Bool(s.Flag, s.Default() == "true", s.Usage)
			continue
		}
		cmd.Flags().String(s.Flag, s.Default(), s.Usage)
	}
}

// configFlag adds the flag --config.
func configFlag(cmd *cobra.Command) {
	cmd.Flags().String("config", os.Getenv(config.FileVariable),
		"configuration file (YAML; see "+berth.DocsURL+"configuration.md)")
}

// loadConfig loads the configuration for the flags of a command: --config, and those of
// server.Settings that it has. A file wins over --config.
//
// An error in the value of a flag is a usage error.
func loadConfig(cmd *cobra.Command, file ...string) (*config.Config, error) {
	return load(cmd, server.Load, file...)
}

// loadVerified is loadConfig for a server to start: it also checks what server.Verify checks.
func loadVerified(cmd *cobra.Command, file ...string) (*config.Config, error) {
	return load(cmd, server.LoadVerified, file...)
}

func load(cmd *cobra.Command, read func(config.Sources) (*config.Config, error), file ...string) (*config.Config,
	error) {
	from := config.Sources{Flags: map[string]string{}}
	if f := cmd.Flags().Lookup("config"); f != nil {
		from.Path = f.Value.String()
	}
	if len(file) > 0 {
		from.Path = file[0]
	}
	cmd.Flags().Visit(func(f *pflag.Flag) { from.Flags[f.Name] = f.Value.String() })
	c, err := read(from)
	if config.IsFlagError(err) || errors.Is(err, fs.ErrNotExist) && from.Flags["config"] != "" {
		return nil, usageError{err}
	}
	return c, err
}
