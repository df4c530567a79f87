package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"golang.org/x/sys/unix"
)

// check validates what keyRules cannot express. more, if it is not nil, checks what other packages know.
// check returns all errors that it finds.
func (c *Config) check(more func(*Config) error) error {
	_, err := c.Budget.Parse()
	var further error
	if more != nil {
		further = more(c)
	}
	return errors.Join(c.checkTogether(), c.checkPools(machineMemory()), c.Server.check(), c.Server.TLS.check(),
		c.checkAddresses(), c.checkState(), further, c.checkCluster(), err,
		c.checkLimits(), c.checkKubernetes(), c.checkCORS(), c.checkTraces(), c.checkAudit(), c.checkPreview(),
		c.checkSignIn(), c.EndUsers.check(), c.Retention.check(),
		c.SSH.check(), c.Proxy.checkAll(), c.WebSearch.Check(), c.Pulls.Mirror.check(), c.checkModels())
}

func (c *Config) checkLimits() error {
	var wrong []error
	for _, id := range slices.Sorted(maps.Keys(c.Limits)) {
		if err := c.Limits[id].Check(); err != nil {
			wrong = append(wrong, fmt.Errorf("limits.%s.%w", id, err))
		}
		if id != defaultLimits && berth.ProjectID(id).Valid() != nil {
			wrong = append(wrong, fmt.Errorf("limits.%s: %q is neither %s nor a project id", id, id, defaultLimits))
		}
	}
	return errors.Join(wrong...)
}

// checkState checks that the state directory is one or can be created.
func (c *Config) checkState() error {
	path, err := filepath.Abs(c.State)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue
		case errors.Is(err, unix.ENOTDIR):
			continue // the file is found above
		case err == nil && !st.IsDir():
			return fmt.Errorf("state: %s is not a directory", at)
		}
		return nil // what else is wrong with it, the server says when it uses it
	}
}

// checkAddresses checks the addresses to listen on.
func (c *Config) checkAddresses() error {
	var wrong []error
	for _, a := range []struct{ key, address string }{{"server.listen", c.Server.Listen},
		{"metrics.listen", c.Metrics.Listen}, {"pprof.listen", c.Pprof.Listen}, {"ssh.listen", c.SSH.Listen},
		{"server.tls.acme.listen", c.Server.TLS.ACME.Listen}} {
		if a.address == "" && a.key != "server.listen" {
			continue
		}
		_, port, err := net.SplitHostPort(a.address)
		if problem := portProblem(port); err == nil && problem != "" {
			wrong = append(wrong, fmt.Errorf("%s: %q has %s; write one from 0 to 65535, such as %s", a.key, a.address,
				problem, "127.0.0.1:8080"))
		} else if err != nil {
			example := "127.0.0.1:8080"
			if _, err := strconv.ParseUint(a.address, 10, 16); err == nil {
				example = "127.0.0.1:" + a.address
			}
			wrong = append(wrong, fmt.Errorf("%s: %q is not an address; write HOST:PORT, such as %s", a.key, a.address,
				example))
		} else if a.key == "pprof.listen" && !IsLoopback(a.address) {
			wrong = append(wrong,
				fmt.Errorf("pprof.listen: %s is not a loopback address; use one, such as 127.0.0.1:6060", a.address))
		}
	}
	return errors.Join(wrong...)
}

// checkTogether checks keys whose values depend on each other.
func (c *Config) checkTogether() error {
	var wrong []error
	k, s := c.Containers, c.Shell
	for _, p := range []struct {
		less, more string
		a, b       time.Duration
	}{
		{"containers.idle", "containers.max_idle", k.Idle, k.MaxIdle},
		{"shell.timeout", "shell.max_timeout", s.Timeout, s.MaxTimeout},
	} {
		if p.a > p.b {
			wrong = append(wrong, fmt.Errorf("%s (%s) must not exceed %s (%s)", p.less, ShortDuration(p.a), p.more,
				ShortDuration(p.b)))
		}
	}
	for name, d := range map[string]time.Duration{"containers.idle": k.Idle, "containers.max_idle": k.MaxIdle} {
		if d%time.Minute != 0 {
			wrong = append(wrong, fmt.Errorf("%s: %q must be whole minutes", name, ShortDuration(d)))
		}
	}
	if d := c.Disk; d.Low != nil && d.Critical != nil && *d.Critical > *d.Low {
		wrong = append(wrong, fmt.Errorf("disk.critical (%s) must not exceed disk.low (%s)", d.Critical, d.Low))
	}
	return errors.Join(wrong...)
}
