package transcript

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
)

func sealedItem(kind berth.ItemType, content string) berth.Item {
	return berth.NewItem(map[string]string{"id": "x_1", "type": string(kind), "encrypted_content": content})
}

func TestSeal(t *testing.T) {
	s := newSealer(seal.New([32]byte{1}))
	box := s.seal("proj_a", berth.ItemReasoning, "a thought")
	if strings.Contains(box, "thought") || box == s.seal("proj_a", berth.ItemReasoning, "a thought") {
		t.Errorf("got %s, which can be read or recognised", box)
	}
	var got string
	if err := s.open("proj_a", sealedItem(berth.ItemReasoning, box), &got); err != nil || got != "a thought" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := newSealer(seal.New([32]byte{1})).open("proj_a", sealedItem(berth.ItemReasoning, box), &got); err != nil {
		t.Errorf("in the next life: %v", err)
	}
	flipped := []byte(box)
	flipped[len(flipped)/2] ^= 1
	for name, open := range map[string]func() error{
		"another project": func() error { return s.open("proj_b", sealedItem(berth.ItemReasoning, box), &got) },
		"another type":    func() error { return s.open("proj_a", sealedItem(berth.ItemMessage, box), &got) },
		"another server": func() error {
			return newSealer(seal.New([32]byte{2})).open("proj_a", sealedItem(berth.ItemReasoning, box), &got)
		},
		"a random key": func() error {
			return newSealer(nil).open("proj_a", sealedItem(berth.ItemReasoning, box), &got)
		},
		"altered": func() error {
			return s.open("proj_a", sealedItem(berth.ItemReasoning, string(flipped)), &got)
		},
		"cut": func() error {
			return s.open("proj_a", sealedItem(berth.ItemReasoning, box[:len(box)-4]), &got)
		},
		"empty":  func() error { return s.open("proj_a", sealedItem(berth.ItemReasoning, ""), &got) },
		"a mark": func() error { return s.open("proj_a", sealedItem(berth.ItemReasoning, sealMark), &got) },
		"without mark": func() error {
			return s.open("proj_a", sealedItem(berth.ItemReasoning, box[len(sealMark):]), &got)
		},
		"foreign": func() error {
			return s.open("proj_a", sealedItem(berth.ItemReasoning, "gAAAAABplLP75yhVf0v4856Geb"), &got)
		},
	} {
		if err := open(); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	s := newSealer(seal.New([32]byte{1}))
	f.Add(s.seal("proj_a", berth.ItemReasoning, "a thought"))
	f.Add(sealMark + "AAAA")
	f.Fuzz(func(t *testing.T, content string) {
		var got string
		if err := s.open("proj_b", sealedItem(berth.ItemReasoning, content), &got); err == nil {
			t.Errorf("%q was opened", content)
		}
	})
}
