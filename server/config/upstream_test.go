package config

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// The examples in docs/models.md are valid configurations.
func TestModelsManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(manual), "```yaml\n")
	if len(parts) != 5 {
		t.Fatalf("docs/models.md has %d examples", len(parts)-1)
	}
	var configs []*Config
	for _, part := range parts[1:] {
		example, _, _ := strings.Cut(part, "```")
		c, err := readConfig(t, example)
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, c)
	}
	if c := configs[0]; len(c.Models) != 3 || c.Models[2].UpstreamModel != "qwen3-32b" ||
		c.Models[2].ContextWindow != 131072 || c.Models[2].Inline().Timeouts.Silence != 10*time.Minute {
		t.Errorf("got %+v", c.Models)
	}
	c := configs[1]
	azure := c.Upstreams["azure"]
	if price := azure.Prices["gpt-5"]; berth.Amount(price.Input).String() != "1.25" ||
		berth.Amount(*price.CachedInput).String() != "0.125" || price.CacheWrite != nil || c.Currency != "usd" {
		t.Errorf("got price %+v", price)
	}
	if c := configs[3]; !c.Priced() || len(c.Warnings()) > 0 || c.Limits[defaultLimits].CostPerMonth == nil {
		t.Errorf("got %+v, %v", c, c.Warnings())
	}
	if c := configs[2]; len(c.Models) != 2 || c.Models[0].Match != "text-embedding-*" ||
		c.Models[0].Inline().ProviderName() != ProviderOpenAI || c.Models[1].Inline().BaseURL == "" {
		t.Errorf("got %+v", c.Models)
	}
	if azure.Limits.Wait != 10*time.Second || azure.TLS.KeyFile == "" ||
		c.Models[0].Fallbacks[0].Model != "openai/gpt-5" || c.Models[1].HedgeAfter != 3*time.Second {
		t.Errorf("got %+v", c)
	}
}

func TestUpstreamsConfig(t *testing.T) {
	const ok = "upstreams:\n  a: {base_url: http://127.0.0.1:1}\n"
	for text, want := range map[string]string{
		"upstreams:\n  a: {base_ulr: x}\n":                                               "berth.yaml:2: unknown key upstreams.a.base_ulr; did you mean base_url?",
		"upstreams:\n  a: {base_url: http://x, tls: {ca: x}}\n":                          "unknown key upstreams.a.tls.ca; ",
		"upstreams:\n  A b: {base_url: http://x}\n":                                      `"A b" is not a name`,
		"upstreams:\n  a: {}\n":                                                          "upstreams.a needs base_url",
		"upstreams:\n  a:\n":                                                             "upstreams.a needs base_url",
		"upstreams:\n  a: {provider: bard}\n":                                            `upstreams.a.provider: "bard" must be`,
		"upstreams:\n  a: {provider: openai, cache: 1h}\n":                               "upstreams.a.cache is not supported by provider openai",
		"upstreams:\n  a: {provider: openai, api_key: a, api_key_envs: [B]}\n":           "upstreams.a has both",
		"upstreams:\n  a: {provider: openai, api_key_envs: [B, B]}\n":                    `upstreams.a.api_key_envs: "B" is empty or a duplicate`,
		"upstreams:\n  a: {provider: openai, proxy: 'ftp://x'}\n":                        "upstreams.a.proxy must be",
		"upstreams:\n  a: {provider: openai, tls: {cert_file: x}}\n":                     "upstreams.a.tls needs both",
		"upstreams:\n  a: {provider: openai, tls: {insecure: true}}\n":                   "upstreams.a.tls.insecure is allowed only for a server on this machine",
		"upstreams:\n  a: {base_url: 'https://10.0.0.1', tls: {insecure: true}}\n":       "upstreams.a.tls.insecure is allowed only for a server on this machine",
		"upstreams:\n  a: {provider: openai, limits: {concurrency: -1}}\n":               `upstreams.a.limits.concurrency: "-1" must be 0 or more`,
		"upstreams:\n  a: {provider: openai, timeouts: {connect: -1s}}\n":                `upstreams.a.timeouts.connect: "-1s" must be 1ms or more`,
		"upstreams:\n  a: {provider: openai, breaker: {share: 2}}\n":                     `upstreams.a.breaker.share: "2" must be`,
		"upstreams:\n  a: {provider: openai, prices: {m: {input: -1}}}\n":                `upstreams.a.prices.m.input: "-1" is not a price`,
		"upstreams:\n  a: {provider: openai, prices: {m: {input: free}}}\n":              `upstreams.a.prices.m.input: "free" is not a price`,
		"upstreams:\n  a: {provider: openai, prices: {m: {in: 1}}}\n":                    "unknown key upstreams.a.prices.m.in; ",
		ok + "models:\n- {match: m, upstreams: [{name: b}]}\n":                           `models[0].upstreams[0].name: unknown upstream "b"`,
		ok + "models:\n- {match: m, upstreams: [{nmae: a}]}\n":                           "berth.yaml:4: unknown key models[0].upstreams[0].nmae; did you mean name?",
		ok + "models:\n- {match: m, upstreams: [{name: a, weight: -1}]}\n":               "models[0].upstreams[0].weight",
		ok + "models:\n- {match: m, upstreams: [{name: a}], fallbacks: [{name: c}]}\n":   `models[0].fallbacks[0].name: unknown upstream "c"`,
		ok + "models:\n- {match: m, upstreams: [{name: a}], base_url: http://x}\n":       "models[0] has upstreams and also keys of an inline upstream",
		ok + "models:\n- {match: m, upstreams: [{name: a}], limits: {concurrency: 1}}\n": "models[0] has upstreams and also keys of an inline upstream",
		ok + "models:\n- {upstreams: [{name: a}]}\n":                                     "models[0] needs match",
		ok + "models:\n- {match: m, upstreams: [{name: a}], hedge_after: -1s}\n":         "models[0].hedge_after",
		"models:\n- {match: m, base_url: http://x, prices: {m: {input: 1}}}\n":           "models[0].prices: an upstream with prices needs a name",
		"currency: euros\n":              `currency: "euros" is not a code`,
		"retry: {attempts: -1}\n":        `retry.attempts: "-1" must be 1 or more`,
		"retry: {continue: sometimes}\n": `retry.continue: "sometimes" must be again or fail`,
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if c, err := readConfig(t, "currency: EUR\n"+ok); err != nil || c.Currency != "eur" {
		t.Errorf("got %v, %v", c, err)
	}
	if c, err := readConfig(t,
		"upstreams: {a: {base_url: 'https://localhost:1', tls: {insecure: true}}}"); err != nil ||
		!c.Upstreams["a"].TLS.Insecure {
		t.Errorf("an insecure upstream on this machine: %v", err)
	}
}

// Every key of a dialect belongs to a provider.
func TestDialects(t *testing.T) {
	for provider, lines := range map[string]string{
		ProviderOpenAI:    "reasoning: all, custom_tools: native, native_tools: [computer]",
		ProviderChat:      "base_url: http://x, system_role: developer, max_tokens: max_tokens, reasoning: reasoning, call_id_length: 9, custom_tools: native",
		ProviderAnthropic: "native_tools: [shell], max_output_tokens: 9, thinking: budget, structured: tool, cache: 1h",
		ProviderGemini:    "thinking: level",
	} {
		c, err := readConfig(t, "models: [{match: a, provider: "+provider+", "+lines+"}]")
		if err != nil {
			t.Errorf("%s: %v", provider, err)
			continue
		}
		if got, want := c.Models[0].dialect(), Dialects[provider]; !slices.Equal(got, want) {
			t.Errorf("%s: got keys %v, want %v", provider, got, want)
		}
	}
	for text, want := range map[string]string{
		"{match: a, provider: anthropic, system_role: system}": "models[0].system_role is not supported by provider anthropic",
		"{match: a, base_url: http://x, cache: 1h}":            "models[0].cache is not supported by provider chat",
		"{match: a, provider: gemini, structured: tool}":       "models[0].structured is not supported by provider gemini",
		"{match: a, provider: bard}":                           `"bard" must be anthropic, chat, gemini or openai`,
	} {
		if _, err := readConfig(t, "models: ["+text+"]"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
