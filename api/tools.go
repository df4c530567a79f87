package api

import (
	"github.com/berth-run/berth"
)

// unservedTools are the tools of OpenAI's document that this server has not.
var unservedTools = []string{
	"apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview", "custom",
	"file_search", "image_generation", "local_shell", "mcp", "namespace", "programmatic_tool_calling",
	"tool_search", "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
}

// toolRule checks an entry of "tools".
var toolRule = byType(withUnsupported(map[string]rule{
	berth.ToolFunction: object(fields{
		"type": anyText, "name": matching("^[a-zA-Z0-9_-]+$", 128), "description": anyText,
		"parameters": anyObject, "strict": boolean,
		"allowed_callers": unsupported, "defer_loading": unsupported, "output_schema": unsupported,
	}, "name"),
	berth.ToolShell: object(fields{
		"type": anyText, "environment": byType(shellEnvironments), "allowed_callers": unsupported,
	}),
}, "tools", unservedTools))

var shellEnvironments = map[string]rule{
	berth.EnvironmentAuto: object(fields{
		"type": anyText, "file_ids": list(text(1, 256), 50), "memory_limit": memoryLimit,
		"network_policy": byType(networkPolicies), "skills": unsupportedUnlessEmpty,
	}),
	berth.EnvironmentReference: object(fields{"type": anyText, "container_id": text(1, 256)}, "container_id"),
	berth.EnvironmentLocal:     object(fields{"type": anyText, "skills": unsupportedUnlessEmpty}),
}

var memoryLimit = oneOf("1g", "4g", "16g", "64g")

var networkPolicies = map[string]rule{
	"disabled": object(fields{"type": anyText}),
	"allowlist": func(at string, _ any) error {
		at = join(at, "type")
		return wire("unsupported_value", at,
			"Unsupported value: '%s' cannot be 'allowlist' yet. Containers of this server have no network; leave the policy out or say 'disabled'.", at)
	},
}
