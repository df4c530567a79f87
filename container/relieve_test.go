package container

import "testing"

// Of containers that fill the volume, the one that grows the most is ended; without one
// that grows, the largest, unless its end would not help.
func TestFullest(t *testing.T) {
	const mb = 1 << 20
	a, b, c := &instance{id: "a"}, &instance{id: "b"}, &instance{id: "c"}
	for name, tt := range map[string]struct {
		all  []diskUse
		need int64
		want *instance
	}{
		"Growth":    {[]diskUse{{a, 900 * mb, 0}, {b, 100 * mb, 90 * mb}, {c, 300 * mb, 20 * mb}}, 10 * mb, b},
		"Size":      {[]diskUse{{a, 900 * mb, mb}, {b, 100 * mb, 2 * mb}}, 10 * mb, a},
		"Shrinking": {[]diskUse{{a, 900 * mb, -100 * mb}, {b, 100 * mb, 0}}, 10 * mb, a},
		"Another":   {[]diskUse{{a, 5 * mb, mb}, {b, 6 * mb, 0}}, 10 * mb, nil}, // something else fills it
		"None":      {nil, 10 * mb, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, found := largestGrowth(tt.all, tt.need)
			if w.s != tt.want || found != (tt.want != nil) {
				t.Errorf("got %v, %v, want %v", w.s, found, tt.want)
			}
		})
	}
}
