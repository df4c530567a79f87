package openterminal

import (
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// parameters reads the query of a request. Values "null" are those of parameters that are not set, and unknown
// parameters have no effect.
type parameters struct {
	values url.Values
	wrong  faults
}

func parametersOf(r *http.Request) *parameters {
	values := r.URL.Query()
	for name, all := range values {
		kept := all[:0]
		for _, one := range all {
			if !strings.EqualFold(one, "null") {
				kept = append(kept, one)
			}
		}
		if values[name] = kept; len(kept) == 0 {
			delete(values, name)
		}
	}
	return &parameters{values: values}
}

// end returns the error of a query with wrong parameters.
func (p *parameters) end() error {
	if p.wrong != nil {
		return p.wrong
	}
	return nil
}

func (p *parameters) fault(kind, name, message string, input any) {
	p.wrong = append(p.wrong, fault{kind, []any{"query", name}, message, input})
}

// text returns a parameter with a default.
func (p *parameters) text(name, otherwise string) string {
	if !p.values.Has(name) {
		return otherwise
	}
	return p.values.Get(name)
}

// required returns a parameter that must be set.
func (p *parameters) required(name string) string {
	if !p.values.Has(name) {
		p.fault("missing", name, "Field required", nil)
	}
	return p.values.Get(name)
}

// list returns all values of a parameter, or nil.
func (p *parameters) list(name string) []string { return p.values[name] }

// boolean returns a parameter that is true or false.
func (p *parameters) boolean(name string, otherwise bool) bool {
	if !p.values.Has(name) {
		return otherwise
	}
	switch text := p.values.Get(name); strings.ToLower(text) {
	case "true", "1", "yes", "on", "t", "y":
		return true
	case "false", "0", "no", "off", "f", "n":
		return false
	default:
		p.fault("bool_parsing", name, "Input should be a valid boolean, unable to interpret input", text)
	}
	return otherwise
}

// number returns a parameter between two bounds. -1 as its default means that it is not set.
func (p *parameters) number(name string, otherwise, least, most float64) float64 {
	if !p.values.Has(name) {
		return otherwise
	}
	text := p.values.Get(name)
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(n) || math.IsInf(n, 0):
		p.fault("float_parsing", name, "Input should be a valid number, unable to parse string as a number", text)
	case n < least:
		p.fault("greater_than_equal", name, "Input should be greater than or equal to "+short(least), text)
	case n > most:
		p.fault("less_than_equal", name, "Input should be less than or equal to "+short(most), text)
	}
	return n
}

// integer is number for whole numbers.
func (p *parameters) integer(name string, otherwise, least, most int) int {
	if text := p.values.Get(name); p.values.Has(name) {
		if _, err := strconv.Atoi(text); err != nil {
			p.fault("int_parsing", name, "Input should be a valid integer, unable to parse string as an integer", text)
			return otherwise
		}
	}
	return int(p.number(name, float64(otherwise), float64(least), float64(most)))
}

// kind returns the parameter "type": file, directory or any.
func (p *parameters) kind() string {
	text := p.text("type", "any")
	if text != "any" && text != "file" && text != "directory" {
		p.fault("string_pattern_mismatch", "type", "String should match pattern '^(file|directory|any)$'", text)
	}
	return text
}

func short(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
