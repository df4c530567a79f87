package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// similarKey returns advice for an unknown key: a similar one, for a key at the top one of the same
// name in a section, or all that are known here.
func similarKey(name string, known map[string]reflect.Type, top bool) string {
	if best := mostSimilar(name, slices.Collect(maps.Keys(known))); best != "" {
		return "did you mean " + best + "?"
	}
	if elsewhere := keysNamed(name); top && len(elsewhere) > 0 {
		return "did you mean " + strings.Join(elsewhere, " or ") + "?"
	}
	return "known here: " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// mostSimilar returns the most similar of the known names, or "" if none is.
func mostSimilar(name string, known []string) (best string) {
	distance := len(name)/3 + 1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// keysNamed returns the keys outside lists and maps whose last part is name.
func keysNamed(name string) (found []string) {
	var walk func(of reflect.Type, at keyPath)
	walk = func(of reflect.Type, at keyPath) {
		if of.Kind() != reflect.Struct {
			return
		}
		for k, f := range keysOf(of) {
			if k == name && at.name != "" {
				found = append(found, at.key(k).name)
			}
			walk(f, at.key(k))
		}
	}
	walk(reflect.TypeFor[Config](), keyPath{})
	slices.Sort(found)
	for i, key := range found { // one that a flag sets is most often meant
		if slices.ContainsFunc(Settings, func(s Setting) bool { return s.Key == key && s.Flag == name }) {
			return append([]string{key}, slices.Delete(found, i, i+1)...)
		}
	}
	return found
}

// editDistance returns the number of characters to insert, remove or replace, and of neighbours to
// swap, that turns a into b.
func editDistance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row
		row = make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before = last
	}
	return row[len(b)]
}
