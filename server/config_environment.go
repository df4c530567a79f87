package server

import (
	"cmp"
	"slices"
	"strings"
)

// openAIBase is the address of OpenAI's API.
const openAIBase = "https://api.openai.com/v1"

// environmentModels returns routes from the vendors' environment variables. A vendor's upstream
// gets the models with that vendor's names. All others go to OPENAI_BASE_URL, which may be
// OpenAI or any server with Chat Completions.
func environmentModels(getenv func(string) string) []ModelConfig {
	var found []ModelConfig
	key := func(names ...string) (set string) { // "" if no name is set
		for _, name := range slices.Backward(names) {
			if getenv(name) != "" {
				set = name
			}
		}
		return set
	}
	if k, base := key("ANTHROPIC_API_KEY"), getenv("ANTHROPIC_BASE_URL"); k != "" || base != "" {
		found = append(found, ModelConfig{Match: "claude-*",
			UpstreamConfig: UpstreamConfig{Provider: providerAnthropic, BaseURL: base, APIKeyEnv: k}})
	}
	if k, base := key("GEMINI_API_KEY", "GOOGLE_API_KEY"), getenv("GOOGLE_GEMINI_BASE_URL"); k != "" || base != "" {
		found = append(found, ModelConfig{Match: "gemini-*",
			UpstreamConfig: UpstreamConfig{Provider: providerGemini, BaseURL: base, APIKeyEnv: k}})
	}
	if k, base := key("OPENAI_API_KEY"), getenv("OPENAI_BASE_URL"); k != "" || base != "" {
		found = append(found, ModelConfig{Match: "*",
			UpstreamConfig: UpstreamConfig{BaseURL: strings.TrimSuffix(cmp.Or(base, openAIBase), "/"),
				APIKeyEnv: k}})
	}
	return found
}
