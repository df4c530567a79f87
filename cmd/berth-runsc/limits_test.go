package main

import (
	"errors"
	"os"
	"slices"
	"testing"
)

func TestWithLimits(t *testing.T) {
	boot := []string{"runsc-sandbox", "--platform=systrap", "boot", "--spec-fd=7", "--setup-root", "--total-memory",
		"99", "s"}
	spec := `{"ociVersion":"1.1.0","linux":{"resources":{"memory":{"limit":1024},"cpu":{"quota":1500,"period":1000}}}}`

	for _, tt := range []struct {
		name string
		args []string
		spec string
		want []string // inserted before the last argument
	}{
		{"OK", boot, spec, []string{"--total-memory=1024", "--cpu-num=2"}},
		{"SecondExecution", slices.DeleteFunc(slices.Clone(boot), func(a string) bool {
			return a == "--setup-root"
		}), spec, nil},
		{"OtherCommand", []string{"runsc", "run", "--spec-fd=7", "--setup-root", "s"}, spec, nil},
		{"NoResources", boot, `{"ociVersion":"1.1.0"}`, nil},
		{"NoFile", boot, "", nil},
		{"BrokenFile", boot, "{", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := withLimits(tt.args, func(fd int) ([]byte, error) {
				if fd != 7 || tt.spec == "" {
					return nil, errors.New("no such file")
				}
				return []byte(tt.spec), nil
			})
			want := slices.Insert(slices.Clone(tt.args), len(tt.args)-1, tt.want...)
			if !slices.Equal(got, want) {
				t.Errorf("withLimits: got %q, want %q", got, want)
			}
		})
	}
}

func TestReadFD(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // readFD does not change the offset
		if got, err := readFD(int(f.Fd())); err != nil || string(got) != "hello" {
			t.Errorf("readFD: got %q, %v, want %q", got, err, "hello")
		}
	}
	if _, err := readFD(-1); err == nil {
		t.Error("readFD(-1): got no error")
	}
}
