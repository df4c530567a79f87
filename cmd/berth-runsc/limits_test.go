package main

import (
	"errors"
	"slices"
	"testing"
)

func TestWithLimits(t *testing.T) {
	boot := []string{"runsc-sandbox", "--platform=systrap", "boot", "--bundle=/b", "--setup-root", "--total-memory", "99", "s"}
	spec := `{"ociVersion":"1.1.0","linux":{"resources":{"memory":{"limit":1024},"cpu":{"quota":1500,"period":1000}}}}`

	for _, tt := range []struct {
		name string
		args []string
		spec string
		want []string // inserted before the last argument
	}{
		{"OK", boot, spec, []string{"--total-memory=1024", "--cpu-num=2"}},
		{"SecondExecution", slices.DeleteFunc(slices.Clone(boot), func(a string) bool { return a == "--setup-root" }), spec, nil},
		{"OtherCommand", []string{"runsc", "run", "--bundle=/b", "--setup-root", "s"}, spec, nil},
		{"NoResources", boot, `{"ociVersion":"1.1.0"}`, nil},
		{"NoFile", boot, "", nil},
		{"BrokenFile", boot, "{", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := withLimits(tt.args, func(name string) ([]byte, error) {
				if name != "/b/config.json" || tt.spec == "" {
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
