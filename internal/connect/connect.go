// Package connect says how clients of other makers reach a server: the lines that their users copy.
package connect

import (
	"encoding/json"
	"strings"
)

// Key stands for a key in the lines for a user whose key is not known.
const Key = "YOUR_API_KEY"

// A Server is what the lines name.
type Server struct {
	URL   string // without a path
	Key   string // "" if the server has no keys
	Model string // any that the server routes
}

// A Client is a client and the lines that its user copies.
type Client struct {
	Name  string `json:"name"`
	Parts []Part `json:"parts"`
}

// A Part is a text for one place.
type Part struct {
	Use  string `json:"use"`  // what the client gets by it: models, or a container by MCP
	File string `json:"file"` // where the text belongs; "" is a shell
	Text string `json:"text"`
}

const (
	models    = "Models"
	container = "A container, by MCP"
)

// Clients returns the lines of each client.
func (s Server) Clients() []Client {
	return []Client{
		{"Claude Code", []Part{
			{models, "", exports("ANTHROPIC_BASE_URL", s.URL, "ANTHROPIC_AUTH_TOKEN", s.key(),
				"ANTHROPIC_MODEL", s.Model, "ANTHROPIC_SMALL_FAST_MODEL", s.Model)},
			{container, "", s.claude()}}},
		{"codex", s.codex()},
		{"Cursor", []Part{{container, ".cursor/mcp.json", s.servers("mcpServers", "")}}},
		{"VS Code", []Part{{container, ".vscode/mcp.json", s.servers("servers", "http")}}},
		{"opencode", []Part{{models + ", and a container by MCP", "opencode.json", encode(object{
			"provider": object{"berth": object{"npm": "@ai-sdk/openai",
				"options": object{"baseURL": s.openAI(), "apiKey": s.key()},
				"models":  object{s.Model: object{"tool_call": true}}}},
			"mcp": object{"berth": s.remote("remote")}})}}},
		{"Open WebUI", []Part{{models, "", exports("OPENAI_API_BASE_URL", s.openAI(), "OPENAI_API_KEY", s.key()) +
			"\nopen-webui serve"}}},
		{"OpenAI's SDKs", []Part{{models, "", exports("OPENAI_BASE_URL", s.openAI(), "OPENAI_API_KEY", s.key())}}},
		{"Anthropic's SDKs", []Part{{models, "", exports("ANTHROPIC_BASE_URL", s.URL, "ANTHROPIC_API_KEY", s.key())}}},
	}
}

type object = map[string]any

// key returns the key, or a word for clients that want one though the server does not.
func (s Server) key() string {
	if s.Key == "" {
		return "none"
	}
	return s.Key
}

func (s Server) openAI() string { return s.URL + "/v1" }

func (s Server) mcp() string { return s.URL + "/mcp" }

// servers returns a file with the MCP server.
func (s Server) servers(field, kind string) string {
	return encode(object{field: object{"berth": s.remote(kind)}})
}

// remote returns the MCP server as most clients name it.
func (s Server) remote(kind string) object {
	out := object{"url": s.mcp()}
	if kind != "" {
		out["type"] = kind
	}
	if s.Key != "" {
		out["headers"] = object{"Authorization": "Bearer " + s.Key}
	}
	return out
}

func (s Server) claude() string {
	out := "claude mcp add --transport http berth " + quote(s.mcp())
	if s.Key != "" {
		out += " --header " + quote("Authorization: Bearer "+s.Key)
	}
	return out
}

// codex returns the parts for codex, whose configuration names a variable with the key.
func (s Server) codex() []Part {
	const file = "~/.codex/config.toml"
	provider := "model = " + text(s.Model) + "\nmodel_provider = \"berth\"\nweb_search = \"disabled\"" +
		"\n\n[model_providers.berth]\nname = \"Berth\"\nbase_url = " + text(s.openAI()) + "\nwire_api = \"responses\""
	server := "[mcp_servers.berth]\nurl = " + text(s.mcp())
	if s.Key == "" {
		return []Part{{models, file, provider}, {container, file, server}}
	}
	return []Part{{"The key", "", exports("BERTH_API_KEY", s.Key)},
		{models, file, provider + "\nenv_key = \"BERTH_API_KEY\""},
		{container, file, server + "\nbearer_token_env_var = \"BERTH_API_KEY\""}}
}

// exports returns commands of a shell that set variables: names and values in turn.
func exports(pairs ...string) string {
	var lines []string
	for i := 0; i < len(pairs); i += 2 {
		lines = append(lines, "export "+pairs[i]+"="+quote(pairs[i+1]))
	}
	return strings.Join(lines, "\n")
}

// quote quotes a word for a shell, if it must be.
func quote(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-") == "" && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// text returns a string of JSON, which is also one of TOML.
func text(s string) string { return encode(s) }

func encode(value any) string {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	_ = out.Encode(value) // it has strings only
	return strings.TrimSpace(b.String())
}
