package server

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/sandbox/local"
)

// variables are the environment variables of Berth's programs that do not set a key of the
// configuration.
var variables = []string{ConfigVariable, "BERTH_URL", "BERTH_API_KEY", "BERTH_MODEL", "BERTH_PLAIN_HTTP", "BERTH_GUEST",
	"BERTH_RUNSC", "BERTH_BIN", "BERTH_DEMO_MODEL"}

const variablePrefix = "BERTH_"

// foreignVariable matches, after the prefix, variables of tests and those that Kubernetes sets for a
// service of the name berth.
var foreignVariable = regexp.MustCompile(`^(TEST_.*|SERVICE_(HOST|PORT).*|PORT(_.*)?)$`)

// Warnings returns what is allowed in the configuration and the environment, but probably not meant.
func (c *Config) Warnings() []string {
	return slices.Concat(c.unusedUpstreams(), c.shadowedModels(), c.unpricedBudgets(), c.readableKeys(), c.sharedSite(),
		c.unknownVariables(os.Environ()))
}

func (c *Config) unusedUpstreams() (found []string) {
	used := map[string]bool{}
	for _, m := range c.Models {
		for _, t := range slices.Concat(m.Upstreams, m.Fallbacks) {
			used[t.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if !used[name] {
			found = append(found, c.at("upstreams."+name)+"is not used: no entry of models names it")
		}
	}
	return found
}

// shadowedModels returns warnings about models whose pattern an earlier entry matches.
func (c *Config) shadowedModels() (found []string) {
	for i, m := range c.Models {
		for j, earlier := range c.Models[:i] {
			if matched, _ := path.Match(earlier.Match, m.Match); matched {
				found = append(found, fmt.Sprintf("%sis not used: models[%d], which matches %q, comes first",
					c.at(fmt.Sprintf("models[%d]", i)), j, earlier.Match))
				break
			}
		}
	}
	return found
}

// StateWarnings returns what a server would warn of with the state directory of this machine. It changes
// nothing there.
func (c *Config) StateWarnings() []string {
	return slices.Concat(c.keyWarning(), c.templateWarning())
}

// machineWait is how long MachineWarnings waits for a database, an engine or a cluster.
const machineWait = 10 * time.Second

// MachineWarnings returns what prevents a server from starting on this machine: a driver whose programs or
// engine are missing, or a PostgreSQL database or a bucket that cannot be used. It is no error of the configuration,
// which may be for another machine, or for a time when these are there.
func (c *Config) MachineWarnings(ctx context.Context) (found []string) {
	ctx, cancel := context.WithTimeout(ctx, machineWait)
	defer cancel()
	state, err := filepath.Abs(c.State)
	if err != nil {
		return nil // an error of the state directory
	}
	checks := append(checkDriver(ctx, state, c), checkDatabase(ctx, state, c)...)
	if c.Blobs != "" && c.VerifyBlobs() == nil {
		checks = append(checks, examineBucket(ctx, state, c.Blobs))
	}
	for _, f := range checks {
		if f.OK {
			continue
		}
		key := "driver"
		switch f.What {
		case "store":
			key = "store.url"
		case "blobs":
			key = "blobs"
		}
		advice := f.Advice
		if f.Fix != nil {
			advice = "berth " + strings.Join(f.Fix, " ")
		}
		found = append(found, strings.TrimSuffix(fmt.Sprintf("%scannot be used on this machine: %s: %s; %s", c.at(key),
			f.What, f.Detail, advice), "; "))
	}
	return found
}

// keyWarning warns of an address that a server with a new state directory refuses.
func (c *Config) keyWarning() []string {
	if isLoopback(c.Server.Listen) || HasDatabase(c.State) || c.Store.URL != "" {
		return nil
	}
	return []string{c.at("server.listen") +
		"needs an API key before the first start, because it is not a loopback address: berth key create --state " +
		c.State}
}

func (c *Config) templateWarning() []string {
	if _, named := c.origins["template"]; !named || c.Driver == local.Name {
		return nil
	}
	if _, err := os.ReadDir(filepath.Join(c.State, "images")); err != nil {
		return nil // not this machine's, or not this user's
	}
	if _, f := checkTemplate(c.State, c); !f.OK {
		return []string{fmt.Sprintf(
			"%s%q does not exist in %s, so containers cannot start; berth image ls lists the templates",
			c.at("template"), c.Template, c.State)}
	}
	return nil
}

// Priced reports whether any upstream has prices. Without, costs are not counted.
func (c *Config) Priced() bool {
	for _, u := range c.Upstreams {
		if len(u.Prices) > 0 {
			return true
		}
	}
	return false
}

// withoutPrices is what a budget does if no upstream has prices.
const withoutPrices = "limits nothing, because no upstream has prices: add prices to an entry of upstreams (docs/models.md#prices)"

// unpricedBudgets returns warnings about limits on costs that are not counted.
func (c *Config) unpricedBudgets() (found []string) {
	if c.Priced() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		if m := c.Limits[name].CostPerMonth; m != nil && *m >= 0 {
			found = append(found, c.at("limits."+name+".cost_per_month")+withoutPrices)
		}
	}
	if b, err := c.Budget.budget(); err == nil && b.Cost > 0 {
		found = append(found, c.at("budget.max_cost")+withoutPrices)
	}
	return found
}

// readableKeys returns a warning if other users of this machine can read a file with keys.
func (c *Config) readableKeys() []string {
	secret := func(key string) bool { return key != "" && key != "none" } // "none" is for models without keys
	keys := secret(c.WebSearch.APIKey)
	for _, u := range c.Upstreams {
		keys = keys || secret(u.APIKey)
	}
	for _, m := range c.Models {
		keys = keys || secret(m.APIKey)
	}
	st, err := os.Stat(c.path)
	if !keys || err != nil || st.Mode()&fs.FileMode(0o004) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(
		"%s contains an API key and all users can read it: chmod 600 %s, or use api_key_env or api_key_file", c.path,
		c.path)}
}

// unknownVariables returns warnings about variables that begin like Berth's own.
func (c *Config) unknownVariables(environ []string) (found []string) {
	known := slices.Clone(variables)
	for _, s := range Settings {
		known = append(known, s.Variable())
	}
	for i, name := range known {
		known[i] = strings.TrimPrefix(name, variablePrefix)
	}
	named := c.namedVariables()
	for _, v := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(v, "=")
		own, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || value == "" || slices.Contains(known, own) || named[name] || foreignVariable.MatchString(own) {
			continue
		}
		if s := mostSimilar(own, known); s != "" {
			found = append(found, fmt.Sprintf("the environment variable %s is not used; did you mean %s%s?", name,
				variablePrefix, s))
		} else {
			found = append(found,
				fmt.Sprintf(
					"the environment variable %s is not used; those of berth serve are in docs/configuration.md", name))
		}
	}
	return found
}

// namedVariables returns the variables that the configuration names as those of keys.
func (c *Config) namedVariables() map[string]bool {
	named := map[string]bool{c.WebSearch.APIKeyEnv: true}
	add := func(u *UpstreamConfig) {
		named[u.APIKeyEnv] = true
		for _, name := range u.APIKeyEnvs {
			named[name] = true
		}
	}
	for _, u := range c.Upstreams {
		add(u)
	}
	for i := range c.Models {
		add(&c.Models[i].UpstreamConfig)
	}
	return named
}

// at returns where a key was set and the key, before what a message says about it.
func (c *Config) at(key string) string {
	if o, set := c.origins[key]; set {
		return o.String() + ": " + key + " "
	}
	return key + " "
}
