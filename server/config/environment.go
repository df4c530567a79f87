package config

import (
	"cmp"
	"slices"
	"strings"
)

// OpenAIBase is the address of OpenAI's API.
const OpenAIBase = "https://api.openai.com/v1"

// EnvironmentModels returns routes from the vendors' environment variables. A vendor's upstream
// gets the models with that vendor's names. All others go to OPENAI_BASE_URL, which may be
// OpenAI or any server with Chat Completions.
func EnvironmentModels(getenv func(string) string) []Model {
	var found []Model
	key := func(names ...string) (set string) { // "" if no name is set
		for _, name := range slices.Backward(names) {
			if getenv(name) != "" {
				set = name
			}
		}
		return set
	}
	if k, base := key("ANTHROPIC_API_KEY"), getenv("ANTHROPIC_BASE_URL"); k != "" || base != "" {
		found = append(found, Model{Match: "claude-*",
			Upstream: Upstream{Provider: ProviderAnthropic, BaseURL: base, APIKeyEnv: k}})
	}
	if k, base := key("GEMINI_API_KEY", "GOOGLE_API_KEY"), getenv("GOOGLE_GEMINI_BASE_URL"); k != "" || base != "" {
		found = append(found, Model{Match: "gemini-*",
			Upstream: Upstream{Provider: ProviderGemini, BaseURL: base, APIKeyEnv: k}})
	}
	if k, base := key("OPENAI_API_KEY"), getenv("OPENAI_BASE_URL"); k != "" || base != "" {
		found = append(found, Model{Match: "*",
			Upstream: Upstream{BaseURL: strings.TrimSuffix(cmp.Or(base, OpenAIBase), "/"),
				APIKeyEnv: k}})
	}
	return found
}
