package seal_test

import (
	"testing"

	"github.com/berth-run/berth/internal/seal"
)

func TestKeychain(t *testing.T) {
	first, second, third := [32]byte{1}, [32]byte{2}, [32]byte{3}
	k := seal.NewKeychain(second, first)
	data := []byte("data")
	box := map[[32]byte][]byte{}
	for _, key := range [][32]byte{first, second, third} {
		box[key] = seal.New(key).Seal(nil, nil, []byte("plain"), data)
	}
	opens := func(key [32]byte, inAny, inNewest bool) {
		t.Helper()
		if plain, err := k.Open([]byte("a "), nil, box[key], data); (err == nil && string(plain) == "a plain") != inAny {
			t.Errorf("key %d: got %q, %v", key[0], plain, err)
		}
		if _, err := k.Newest().Open(nil, nil, box[key], data); (err == nil) != inNewest {
			t.Errorf("key %d, newest: got %v", key[0], err)
		}
	}
	opens(first, true, false)
	opens(second, true, true)
	opens(third, false, false)
	k.Replace(third)
	if k.Current() != third {
		t.Errorf("the current key is %x", k.Current())
	}
	opens(first, true, false)
	opens(second, true, false)
	opens(third, true, true)
	if _, err := seal.New(third).Open(nil, nil, k.Seal(nil, nil, []byte("x"), data), data); err != nil {
		t.Errorf("not sealed with the current key: %v", err)
	}
}
