package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// A rowFormat is the value of --format: a template for the lines of a listing.
type rowFormat struct{ template *template.Template }

// Set implements pflag.Value. As in docker's templates, \t is a tab.
func (f *rowFormat) Set(text string) error {
	parsed, err := template.New("").Parse(strings.ReplaceAll(text, `\t`, "\t"))
	if err != nil {
		return fmt.Errorf("%q is no template: %s", text, strings.TrimPrefix(err.Error(), "template: "))
	}
	f.template = parsed
	return nil
}

// String implements pflag.Value.
func (f *rowFormat) String() string { return "" }

// Type implements pflag.Value.
func (f *rowFormat) Type() string { return "TEMPLATE" }

// print prints an object on a line. A field that the object does not have is empty.
func (f *rowFormat) print(w io.Writer, o any) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode an object for --format: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // times stay whole numbers
	var value any
	if err := d.Decode(&value); err != nil {
		return fmt.Errorf("decode an object for --format: %w", err)
	}
	var line strings.Builder
	if err := f.template.Execute(&line, linear(value)); err != nil {
		return badUsage("--format: %s", strings.TrimPrefix(err.Error(), "template: "))
	}
	_, err = fmt.Fprintln(w, strings.ReplaceAll(line.String(), "<no value>", ""))
	return err
}

// linear returns a value of JSON whose texts have no control characters: a name with a line feed would look like two
// objects.
func linear(value any) any {
	switch v := value.(type) {
	case string:
		return inLine(v)
	case []any:
		for i := range v {
			v[i] = linear(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = linear(v[name])
		}
	}
	return value
}
