package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// modalities are the kinds of input that a model may accept.
var modalities = []string{"text", "image", "file", "audio"}

var currencyCode = regexp.MustCompile(`^[a-z]{3}$`)

// checkModels validates upstreams and models, and sets the default currency. It returns all errors
// that it finds.
func (c *Config) checkModels() error {
	var wrong []error
	c.Currency = strings.ToLower(cmp.Or(c.Currency, "usd"))
	if !currencyCode.MatchString(c.Currency) {
		wrong = append(wrong, fmt.Errorf("currency: %q is not a code of three letters", c.Currency))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		switch {
		case !upstreamName.MatchString(name):
			wrong = append(wrong, fmt.Errorf("upstreams: %q is not a name of lower case letters, digits, - and _",
				name))
		case u == nil || u.BaseURL == "" && u.ProviderName() == ProviderChat:
			wrong = append(wrong, fmt.Errorf("upstreams.%s needs base_url, or a provider that has one", name))
		default:
			if err := u.check(); err != nil {
				wrong = append(wrong, fmt.Errorf("upstreams.%s%w", name, err))
			}
		}
	}
	for i := range c.Models {
		if err := c.checkModel(&c.Models[i]); err != nil {
			wrong = append(wrong, fmt.Errorf("models[%d]%w", i, err))
		}
	}
	return errors.Join(wrong...)
}

func (c *Config) checkModel(m *Model) error {
	for _, kind := range m.Modalities {
		if !slices.Contains(modalities, kind) {
			return fmt.Errorf(".modalities: %q is not one of %v", kind, modalities)
		}
	}
	if len(m.Upstreams) == 0 {
		if c.Upstreams[m.UpstreamModel] != nil && reflect.DeepEqual(m.Upstream, Upstream{}) {
			return fmt.Errorf(
				".upstream is the model's name at an inline upstream; for the upstream %s write upstreams: [{name: %[1]s}]",
				m.UpstreamModel)
		}
		if m.Match == "" || m.BaseURL == "" && (m.ProviderName() == ProviderChat) {
			return errors.New(
				" needs match and base_url, or match and upstreams, such as {match: gpt-*, upstreams: [{name: openai}]}")
		}
		if len(m.Prices) > 0 {
			return errors.New(".prices: an upstream with prices needs a name; move it to upstreams")
		}
		if err := m.check(); err != nil {
			return err
		}
		return c.checkTargets("fallbacks", m.Fallbacks)
	}
	if m.Match == "" {
		return errors.New(" needs match")
	}
	if m.UpstreamModel != "" || m.FirstToken != 0 || m.Silence != 0 || !reflect.DeepEqual(m.Upstream,
		Upstream{}) {
		return errors.New(" has upstreams and also keys of an inline upstream; move these keys to upstreams")
	}
	if err := c.checkTargets("upstreams", m.Upstreams); err != nil {
		return err
	}
	return c.checkTargets("fallbacks", m.Fallbacks)
}

func (c *Config) checkTargets(key string, targets []Target) error {
	for i, t := range targets {
		if c.Upstreams[t.Name] == nil {
			return fmt.Errorf(".%s[%d].name: unknown upstream %q", key, i, t.Name)
		}
		if t.Weight > 0 && key == "fallbacks" {
			return fmt.Errorf(".%s[%d].weight is allowed in upstreams only", key, i)
		}
	}
	return nil
}
