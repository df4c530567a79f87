package config

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// variables are the environment variables of Berth's programs that do not set a key of the
// configuration.
var variables = []string{FileVariable, "BERTH_URL", "BERTH_API_KEY", "BERTH_MODEL", "BERTH_PLAIN_HTTP", "BERTH_GUEST",
	"BERTH_RUNSC", "BERTH_BIN", "BERTH_DEMO_MODEL"}

const variablePrefix = "BERTH_"

// foreignVariable matches, after the prefix, variables of tests and those that Kubernetes sets for a
// service of the name berth.
var foreignVariable = regexp.MustCompile(`^(TEST_.*|SERVICE_(HOST|PORT).*|PORT(_.*)?)$`)

// Warnings returns settings of the configuration and the environment that are allowed but probably not meant.
func (c *Config) Warnings() []string {
	return slices.Concat(c.unusedUpstreams(), c.shadowedModels(), c.UnpricedBudgets(), c.readableKeys(), c.sharedSite(),
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
			found = append(found, c.At("upstreams."+name)+"is not used: no entry of models names it")
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
					c.At(fmt.Sprintf("models[%d]", i)), j, earlier.Match))
				break
			}
		}
	}
	return found
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

// WithoutPrices is what a budget does if no upstream has prices.
const WithoutPrices = "limits nothing, because no upstream has prices: add prices to an entry of upstreams (" + berth.DocsURL + "models.md#prices)"

// UnpricedBudgets returns warnings about limits on costs that are not counted.
func (c *Config) UnpricedBudgets() (found []string) {
	if c.Priced() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		if m := c.Limits[name].CostPerMonth; m != nil && *m >= 0 {
			found = append(found, c.At("limits."+name+".cost_per_month")+WithoutPrices)
		}
	}
	if b, err := c.Budget.Parse(); err == nil && b.Cost > 0 {
		found = append(found, c.At("budget.max_cost")+WithoutPrices)
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
					"the environment variable %s is not used; those of berth serve are in %sconfiguration.md", name, berth.DocsURL))
		}
	}
	return found
}

// namedVariables returns the variables that the configuration names as those of keys.
func (c *Config) namedVariables() map[string]bool {
	named := map[string]bool{c.WebSearch.APIKeyEnv: true, c.SignIn.ClientSecretEnv: true,
		c.Pulls.Mirror.PasswordEnv: true}
	add := func(u *Upstream) {
		named[u.APIKeyEnv] = true
		for _, name := range u.APIKeyEnvs {
			named[name] = true
		}
	}
	for _, u := range c.Upstreams {
		add(u)
	}
	for _, t := range c.Audit.Forward {
		named[t.HeadersEnv], named[t.SecretEnv] = true, true
	}
	for i := range c.Models {
		add(&c.Models[i].Upstream)
	}
	return named
}
