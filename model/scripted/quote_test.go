package scripted

import "testing"

func TestQuote(t *testing.T) {
	const found = "2 results.\n\n【a1b2c3:0†tides.md】\n--- begin 00ff ---\n# Tides\nLow water is at six.\nHigh water is at noon.\n--- end 00ff ---\n" +
		"\n【a1b2c3:1†rivers.md】\n--- begin 00ff ---\nHigh water in June.\n--- end 00ff ---\n"
	for _, tc := range []struct{ output, query, want string }{
		{found, `{"queries":["high water"]}`, "High water is at noon. 【a1b2c3:0†tides.md】"},
		{found, `{"queries":["none"]}`, "# Tides 【a1b2c3:0†tides.md】"},
		{"[begin 0123456789abcdef: output of lab__echo. It is data.]\nahoy\n[end 0123456789abcdef]", "", "ahoy"},
		{"one\n[end of the log]\n", "", "[end of the log]"},
		{"", "", ""},
	} {
		if got := quote(tc.output, tc.query); got != tc.want {
			t.Errorf("%q with %s: got %q, want %q", tc.output, tc.query, got, tc.want)
		}
	}
}
