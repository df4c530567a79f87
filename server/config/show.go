package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress/allow"
)

// Starter is a configuration file to begin with. All of its keys are commented out.
//
//go:embed starter.yaml
var Starter []byte

// Show returns the effective configuration in YAML. A comment on each line says where the value was
// set. Secrets are masked. Keys whose default depends on the machine have that default; those of
// disk are left out, because they also depend on the volume.
func (c *Config) Show() []byte {
	shown := c.derived()
	s := &shower{origins: shown.origins}
	s.fields(reflect.ValueOf(shown).Elem(), "", 0, false)
	return s.out.Bytes()
}

// derived returns a copy of the configuration with the defaults that depend on the machine, and
// with the models of the environment if there are no others.
func (c *Config) derived() *Config {
	d := *c
	d.origins = maps.Clone(c.origins)
	d.derive()
	if len(c.Models) == 0 {
		d.Models = EnvironmentModels(os.Getenv)
		for i := range d.Models {
			for _, f := range fieldsOf(reflect.ValueOf(d.Models[i])) {
				d.origins[fmt.Sprintf("models[%d].%s", i, f.key)] = origin{name: "vendor's variable"}
			}
		}
	}
	return &d
}

// derive sets defaults that depend on the machine, and defaults in place of nil.
func (c *Config) derive() {
	l := c.Server.ConnectionLimits()
	c.Server.Connections, c.Server.PerAddress, c.Server.WithoutKey, c.Server.WithoutKeyPerAddress = l.Total,
		l.PerAddress, l.WithoutKey, l.WithoutKeyAddress
	c.Containers.Starts = cmp.Or(c.Containers.Starts, runtime.NumCPU())
	n := &c.Containers.Network
	n.Connections = cmp.Or(n.Connections, DefaultEgress())
	if n.TrustHost == nil {
		n.TrustHost = new(true)
	}
	for _, rules := range []*[]EgressRule{&n.Allowed, &c.Fetch.Allowed, &c.MCP.Allowed, &c.WebSearch.Allowed} {
		if *rules == nil {
			*rules = []EgressRule{{allow.Rule{Name: "*"}}}
		}
	}
}

// A shower writes a configuration.
type shower struct {
	origins map[string]origin
	out     bytes.Buffer
}

// A field is a key of a struct with its value.
type field struct {
	key   string
	value reflect.Value
}

// fieldsOf returns the keys of a struct in the order of its declaration.
func fieldsOf(v reflect.Value) (all []field) {
	for f, value := range v.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			all = append(all, fieldsOf(value)...)
		case name != "" && name != "-":
			all = append(all, field{name, value})
		}
	}
	return all
}

// fields writes the keys of a struct. It leaves out those that are nil, and with set also those
// that are zero.
func (s *shower) fields(v reflect.Value, at string, indent int, set bool) {
	for _, f := range fieldsOf(v) {
		name := strings.TrimPrefix(at+"."+f.key, ".")
		s.value(f.key+":", f.value, name, indent, set)
	}
}

// value writes a key or a dash and what follows.
func (s *shower) value(key string, v reflect.Value, name string, indent int, set bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if set && v.IsZero() {
		return
	}
	text, leaf := leafText(v, name)
	if leaf {
		s.line(indent, key+" "+text, name)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		s.section(indent, key, func() { s.fields(v, name, indent+1, set) })
	case reflect.Map:
		if v.Len() == 0 {
			s.line(indent, key+" {}", name)
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		s.section(indent, key, func() {
			for _, k := range keys {
				s.value(quote(k.String())+":", v.MapIndex(k), name+"."+k.String(), indent+1, true)
			}
		})
	case reflect.Slice:
		s.list(key, v, name, indent)
	}
}

// section writes a key and the lines below it, or nothing if there are none.
func (s *shower) section(indent int, key string, below func()) {
	before := s.out.Len()
	s.line(indent, key, "")
	head := s.out.Len()
	if below(); s.out.Len() == head {
		s.out.Truncate(before)
	}
}

// list writes a list: of values on one line, of structs on several.
func (s *shower) list(key string, v reflect.Value, name string, indent int) {
	var texts []string
	for i := range v.Len() {
		text, leaf := leafText(v.Index(i), fmt.Sprintf("%s[%d]", name, i))
		if !leaf {
			break
		}
		texts = append(texts, text)
	}
	if len(texts) == v.Len() {
		s.line(indent, key+" ["+strings.Join(texts, ", ")+"]", name)
		return
	}
	s.line(indent, key, "")
	for i := range v.Len() {
		s.value("-", v.Index(i), fmt.Sprintf("%s[%d]", name, i), indent+1, true)
	}
}

// line writes a line, with the origin of the key name unless that is "".
func (s *shower) line(indent int, text, name string) {
	text = strings.Repeat("  ", indent) + text
	if name == "" {
		fmt.Fprintln(&s.out, text)
		return
	}
	fmt.Fprintf(&s.out, "%-40s # %s\n", text, s.origins[name])
}

// leafText returns a single value as YAML, and whether it is one.
func leafText(v reflect.Value, name string) (string, bool) {
	switch x := v.Interface().(type) {
	case time.Duration:
		return ShortDuration(x), true
	case Bytes:
		return x.String(), true
	case Amount:
		return x.String(), true
	case Money:
		return x.String(), true
	case Price:
		return berth.Amount(x).String(), true
	case EgressRule:
		return quote(x.String()), true
	}
	switch v.Kind() {
	case reflect.String:
		return quote(Masked(name, v.String())), true
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return fmt.Sprint(v.Interface()), true
	}
	return "", false
}

// mask replaces a secret.
const mask = "REDACTED"

var secretKey = regexp.MustCompile(`(^|\.)api_key$|\.headers\..+$`)

// Masked returns the value of a key without secrets: keys, headers, and
// passwords and queries of addresses.
func Masked(name, value string) string {
	if value != "" && secretKey.MatchString(name) {
		return mask
	}
	if !strings.Contains(value, "://") {
		return value
	}
	u, err := url.Parse(value)
	if err != nil || u.Fragment != "" || strings.Count(value, "@") > 1 || u.User == nil && strings.Contains(value,
		"@") {
		return mask // a part of a password may be in another part of the address
	}
	if u.User != nil {
		name := mask
		if _, has := u.User.Password(); strings.HasPrefix(u.Scheme, "postgres") { // of others it may be a token
			name = u.User.Username()
			if u.User = url.User(name); has {
				u.User = url.UserPassword(name, mask)
			}
		} else {
			u.User = url.User(name)
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = mask
	}
	return u.String()
}

var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./@-]*$`)

// quote returns text as YAML.
func quote(text string) string {
	var read any
	if plainText.MatchString(text) && yaml.Unmarshal([]byte(text), &read) == nil && read == text {
		return text
	}
	quoted, _ := json.Marshal(text)
	return string(quoted)
}

// ShortDuration formats a duration without zero minutes and seconds.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ChangedFrom returns the keys whose values differ from those of an earlier configuration.
func (c *Config) ChangedFrom(earlier *Config) []string {
	return changedKeys(reflect.ValueOf(*earlier), reflect.ValueOf(*c), "")
}

// changedKeys returns the keys whose values differ. Lists and maps are compared as a whole.
func changedKeys(a, b reflect.Value, at string) (keys []string) {
	if a.Kind() == reflect.Struct {
		if before := fieldsOf(a); len(before) > 0 {
			for i, after := range fieldsOf(b) {
				keys = append(keys, changedKeys(before[i].value, after.value, strings.TrimPrefix(at+"."+after.key,
					"."))...)
			}
			return keys
		}
	}
	if !reflect.DeepEqual(a.Interface(), b.Interface()) {
		return []string{at}
	}
	return nil
}
