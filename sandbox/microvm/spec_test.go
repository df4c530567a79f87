package microvm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/sandbox"
)

func TestGuestEnv(t *testing.T) {
	got := guestEnv(sandbox.Spec{
		Env:    []string{"A=1", "BERTH_PIDS_LIMIT=1000000", "BERTH_MEMORY_LIMIT=1", "BERTH_GUEST_PORTS=0", "PATH=/x"},
		Limits: sandbox.Limits{Memory: 1 << 30, PIDs: 80},
	})
	want := []string{"BERTH_PIDS_LIMIT=70", "BERTH_THREADS=24", "BERTH_WATCH=1", "BERTH_GUEST_LOG=/dev/null", "A=1",
		"PATH=/x"}
	if !slices.Equal(got, want) {
		t.Errorf("guestEnv: got %q, want %q", got, want)
	}
}

func TestCompareVersions(t *testing.T) {
	ordered := []string{"vmlinuz-5.10.0-20", "vmlinuz-6.1.0-9", "vmlinuz-6.1.0-10", "vmlinuz-6.1.0-10-cloud",
		"vmlinuz-6.12.0-1"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("compareVersions(%q, %q): got %d", a, b, got)
			}
		}
	}
}

// module writes a file with the metadata of a kernel module.
func module(t *testing.T, path, depends string) {
	t.Helper()
	info := "license=GPL\x00depends=" + depends + "\x00"
	names := "\x00.modinfo\x00.shstrtab\x00"
	var b bytes.Buffer
	const head = 64
	header := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_REL),
		Machine: uint16(elf.EM_X86_64),
		Version: 1, Shoff: uint64(head + len(info) + len(names)), Ehsize: head, Shentsize: 64, Shnum: 3, Shstrndx: 2}
	binary.Write(&b, binary.LittleEndian, header)
	b.WriteString(info + names)
	binary.Write(&b, binary.LittleEndian, []elf.Section64{{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: head, Size: uint64(len(info))},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(head + len(info)), Size: uint64(len(names))}})
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLoadOrder(t *testing.T) {
	dir := t.TempDir()
	for name, depends := range map[string]string{"a/top.ko": "left,right-hand", "b/left.ko": "base",
		"right_hand.ko": "base", "c/base.ko": "",
		"self.ko": "other", "other.ko": "self", "alone.ko": "missing"} {
		module(t, filepath.Join(dir, name), depends)
	}
	got, err := loadOrder(dir, []string{"left", "top"})
	for i := range got {
		got[i] = filepath.Base(got[i])
	}
	if diff := cmp.Diff([]string{"base.ko", "left.ko", "right_hand.ko", "top.ko"}, got); diff != "" || err != nil {
		t.Errorf("loadOrder: %v (-want +got)\n%s", err, diff)
	}
	for _, name := range []string{"self", "alone", "nothing"} {
		if got, err := loadOrder(dir, []string{name}); err == nil {
			t.Errorf("loadOrder of %s: got %q, want an error", name, got)
		}
	}
}

// TestInitramfs reads the archive with another implementation of the format.
func TestInitramfs(t *testing.T) {
	dir := t.TempDir()
	guest, mod := filepath.Join(dir, "guest"), filepath.Join(dir, "x.ko")
	if err := os.WriteFile(guest, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mod, []byte("module!!"), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := writeInitramfs(&b, guest, []string{mod}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for rest := b.Bytes(); ; {
		if len(rest) < 110 || string(rest[:6]) != "070701" {
			t.Fatalf("after %q: not a header: %.20q", got, rest)
		}
		field := func(i int) int {
			n := 0
			for _, c := range strings.ToLower(string(rest[6+8*i : 14+8*i])) {
				n = n<<4 + strings.IndexRune("0123456789abcdef", c)
			}
			return n
		}
		size, name := field(6), field(11)
		body := (110 + name + 3) &^ 3
		entry := string(rest[110:110+name-1]) + ":" + string(rest[body:body+size])
		if entry == "TRAILER!!!:" {
			break
		}
		got = append(got, entry)
		rest = rest[(body+size+3)&^3:]
	}
	if want := []string{"dev:", "dev/console:", "init:program", "modules:", "modules/000-x.ko:module!!"}; !slices.Equal(
		got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
