package console

import (
	"compress/gzip"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/console/assets"
)

// TestMoney: amounts have two decimals, and two digits below a cent.
func TestMoney(t *testing.T) {
	for amount, want := range map[string]string{"0": "$0", "0.0000527": "$0.000053", "0.0012": "$0.0012", "0.04": "$0.04",
		"3.456": "$3.46", "1234": "$1234.00", "0.000000001": "$0.000000001", "-2": "-$2.00"} {
		value, err := berth.ParseAmount(amount)
		if err != nil {
			t.Fatal(err)
		}
		if got := money(&berth.Cost{Value: value, Currency: "usd"}); got != want {
			t.Errorf("%s: got %s, want %s", amount, got, want)
		}
	}
	if got := money(&berth.Cost{Value: 2e9, Currency: "chf"}); got != "2.00 CHF" {
		t.Errorf("got %s", got)
	}
}

// TestWords: times, numbers and ids as people read them.
func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		ago(2 * time.Second): "just now", ago(90 * time.Second): "1 min ago", ago(-2 * time.Hour): "in 2 h",
		count(999): "999", count(1287): "1,287", count(-1234567): "-1,234,567", took(7_300_000): "2 h 1 min",
		short("resp_01a21e59667a82b7e204a5d09f7bfca7c0fb9a7fa3c43e2e"): "resp_a3c43e2e", short("proj_default"): "proj_default",
		short("sha256:bd66ffa63cf7aaaaaaaaaaaaaaaa"): "bd66ffa63cf7",
		short(strings.Repeat("é", 40)):               strings.Repeat("é", 11) + "…",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestTitle: a title is the first line of the user without the marks of Markdown.
func TestTitle(t *testing.T) {
	for text, want := range map[string]string{
		"Compute the monthly totals of **sales.csv**.": "Compute the monthly totals of sales.csv.",
		"\n\n# `make` it\nmore":                        "make it",
		"- see [the list](https://x.example/)":         "see the list",
		"> **Note**":                                   "Note",
		"```sh\n\nuname -a\n```":                       "uname -a",
		"```sh\nuname\n```\nThen stop":                 "Then stop",
		"2 * 3 * 4":                                    "2 * 3 * 4",
		"**":                                           "",
		strings.Repeat("x", 100):                       strings.Repeat("x", 80) + "…",
	} {
		if got := titleOf(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestIcons: the file of icons has those that are named, and no other.
func TestIcons(t *testing.T) {
	packed, err := assets.Files.Open("vendor/lucide-1.62.0.svg.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	sprite, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, m := range regexp.MustCompile(`<symbol id="([^"]+)"`).FindAllStringSubmatch(string(sprite), -1) {
		has[m[1]] = true
	}
	used := map[string]bool{}
	named := regexp.MustCompile(`(?:"icon" "|svg#|\.Link "[^"]+" ")([a-z0-9-]+)`)
	names, err := fs.Glob(content, "*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(content, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
	}
	for _, b := range badges {
		used[b.Icon] = true
	}
	for _, k := range callKinds {
		used[k.icon] = true
	}
	for _, p := range append(palettePages, operatorPages...) {
		used[p.Icon] = true
	}
	used[badgeOf("unknown").Icon], used[(&entry{}).Icon()] = true, true
	for name := range used {
		if !has[name] {
			t.Errorf("the icon %s is used and not in the file", name)
		}
	}
	for name := range has {
		if !used[name] {
			t.Errorf("the icon %s is in the file and not used", name)
		}
	}
}

// TestAnswers: a form answers each call, or all; one without an answer for a call is refused.
func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		form map[string][]string
		want string
	}{
		"all":         {map[string][]string{"call": {"mcpr_1", "mcpr_2"}, "all": {"approve"}}, "mcpr_1 true  mcpr_2 true "},
		"denied":      {map[string][]string{"call": {"mcpr_1"}, "all": {"deny"}, "reason": {" no "}}, "mcpr_1 false no"},
		"each":        {map[string][]string{"call": {"mcpr_1", "mcpr_2"}, "each": {"yes"}, "mcpr_1": {"approve"}, "mcpr_2": {"deny"}}, "mcpr_1 true  mcpr_2 false "},
		"one missing": {map[string][]string{"call": {"mcpr_1", "mcpr_2"}, "each": {"yes"}, "mcpr_1": {"approve"}}, ""},
		"none":        {map[string][]string{"all": {"approve"}}, ""},
		"another id":  {map[string][]string{"call": {"resp_1"}, "all": {"approve"}}, ""},
		"no answer":   {map[string][]string{"call": {"mcpr_1"}}, ""},
	} {
		var got []string
		for _, a := range answersOf(test.form) {
			got = append(got, a.ID+map[bool]string{true: " true ", false: " false "}[a.Approve]+a.Reason)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
