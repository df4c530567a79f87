package config

import (
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Bytes is a size: a number with an optional unit k, m, g or t.
type Bytes int64

// UnmarshalYAML parses 1073741824, 512m or 10g.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	return b.Set(n.Value)
}

// Set implements pflag.Value, together with String and Type.
func (b *Bytes) Set(s string) error {
	var number int64
	var unit string
	if c, err := fmt.Sscanf(s, "%d%s", &number, &unit); c == 0 || (err != nil && !errors.Is(err, io.EOF) && c != 1) {
		return fmt.Errorf("%q is not a size such as 10g", s)
	}
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit]
	if !ok || number < 0 || number > 1<<62>>shift {
		return fmt.Errorf("%q is not a size such as 10g", s)
	}
	*b = Bytes(number << shift)
	return nil
}

func (b *Bytes) String() string {
	for _, u := range []struct {
		name  string
		shift int
	}{{"t", 40}, {"g", 30}, {"m", 20}, {"k", 10}} {
		if n := *b >> u.shift; n > 0 && n<<u.shift == *b {
			return fmt.Sprintf("%d%s", n, u.name)
		}
	}
	return fmt.Sprint(int64(*b))
}

func (*Bytes) Type() string { return "size" }
